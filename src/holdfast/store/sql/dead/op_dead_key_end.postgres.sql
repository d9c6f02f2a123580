-- The dedupe keys of dead letters that are archived are held for a while from now on; locked sorted, as settlements
-- do.
update holdfast.dedupe x set ended_at = coalesce(:now::timestamptz, clock_timestamp())
 where (x.scope, x.key) in (
     select k.scope, k.key from holdfast.dead d join holdfast.dedupe k on k.scope = holdfast.dedupe_scope(d.type, d.dedupe) and k.key = d.dedupe and k.id = d.id
      where (d.id, d.queue, d.seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]))
      order by k.scope, k.key for update of k)
