-- Dead letters that came back from a file hold their dedupe keys again, unless another message has taken them.
insert into holdfast.dedupe as t (scope, key, id)
select holdfast.dedupe_scope(d.type, d.dedupe), d.dedupe, d.id from holdfast.dead d
 where (d.id, d.queue, d.seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[])) and d.dedupe is not null
 group by 1, 2, 3 order by 1, 2
    on conflict (scope, key) do update set ended_at = null where t.id = excluded.id
