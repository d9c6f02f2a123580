-- Those of these dead letters that an instance waits for, by their headers.
select d.id, d.headers, d.epoch from holdfast_dead d
 where (d.id, d.queue, d.seq) in (
     select i.value, q.value, n.value
       from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key)
   and d.headers like '%"holdfast-on-dead":%'
