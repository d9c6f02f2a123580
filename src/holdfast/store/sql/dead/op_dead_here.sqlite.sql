-- Which of these messages are pending or dead here. It is the same message if id and time are the same.
select i.key
  from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:dues) a on a.key = i.key
 where exists (select 1 from holdfast_pending m where m.id = i.value and m.queue = q.value
                  and coalesce(m.due_at, m.created_at) = a.value)
    or exists (select 1 from holdfast_dead d where d.id = i.value and d.queue = q.value
                  and coalesce(d.due_at, d.created_at) = a.value)
