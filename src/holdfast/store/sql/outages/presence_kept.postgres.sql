-- The rows of workers that were not seen since a moment are removed next: record when they were last seen.
insert into holdfast.presence as p (queue, worked_at)
select q.name, max(w.seen_at) from holdfast.worker w cross join lateral pg_catalog.unnest(w.queues) q (name)
 where w.seen_at < :before::timestamptz group by q.name order by q.name
    on conflict (queue) do update set worked_at = excluded.worked_at where p.worked_at < excluded.worked_at
