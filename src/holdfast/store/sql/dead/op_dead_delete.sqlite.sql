-- Dead letters that came back or were discarded leave the table.
delete from holdfast_dead
 where (id, queue, seq) in (
     select i.value, q.value, n.value
       from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key)
