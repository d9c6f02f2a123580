-- Dead letters that came back from a file hold their dedupe keys again, unless another message has taken them.
insert into holdfast_dedupe (scope, key, id)
select case when unicode(d.dedupe) = 31 then '' else d.type end, d.dedupe, d.id from holdfast_dead d
 where (d.id, d.queue, d.seq) in (
     select i.value, q.value, n.value
       from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key)
   and d.dedupe is not null
 group by 1, 2, 3
    on conflict (scope, key) do update set ended_at = null where holdfast_dedupe.id = excluded.id
