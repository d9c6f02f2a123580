-- Where messages are: pending, dead since a moment, or neither.
select i.value, q.value,
       exists (select 1 from holdfast_pending m where m.id = i.value and m.queue = q.value),
       exists (select 1 from holdfast_dead d where d.id = i.value and d.queue = q.value and d.died_at >= :since)
  from json_each(:ids) i join json_each(:queues) q on q.key = i.key
