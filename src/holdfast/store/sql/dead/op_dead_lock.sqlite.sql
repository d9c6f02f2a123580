-- Read dead letters, and whether a message with the same id is pending in their queue. Those that are gone are left out,
-- and so are those that are held.
select d.id, d.queue, d.seq, d.stream, d.position, d.epoch, d.died_at,
       exists (select 1 from holdfast_pending m where m.id = d.id and m.queue = d.queue)
  from holdfast_dead d
  join json_each(:ids) i on i.value = d.id join json_each(:queues) q on q.key = i.key and q.value = d.queue
  join json_each(:numbers) n on n.key = i.key and n.value = d.seq
 where d.held_at is null
