-- The dedupe keys of dead letters that are archived are held for a while from now on.
update holdfast_dedupe set ended_at = :now
 where (scope, key, id) in (
     select case when unicode(d.dedupe) = 31 then '' else d.type end, d.dedupe, d.id from holdfast_dead d
      where (d.id, d.queue, d.seq) in (
     select i.value, q.value, n.value
       from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key))
