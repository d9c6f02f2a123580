-- Which of these dead letters are pending again: the same message, by id and time.
select d.id, d.queue, d.seq from holdfast_dead d
  join holdfast_message m on m.id = d.id and m.queue = d.queue
   and coalesce(m.due_at, m.created_at) = coalesce(d.due_at, d.created_at)
 where (d.id, d.queue, d.seq) in (
     select i.value, q.value, n.value
       from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key)
