-- Read dead letters. Those that are gone are left out, and so are those that are held
-- and those whose message is pending again.
select d.id, d.queue, d.stream, d.position, d.seq, d.epoch from holdfast_dead d
  join json_each(:ids) i on i.value = d.id join json_each(:queues) q on q.key = i.key and q.value = d.queue
 where d.held_at is null
   and not exists (select 1 from holdfast_message m where m.id = d.id and m.queue = d.queue)
