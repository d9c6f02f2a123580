-- The rows of workers that were not seen since a moment are removed next: record when they were last seen.
insert into holdfast_presence (queue, worked_at)
select q.value, max(w.seen_at) from holdfast_worker w join json_each(w.queues) q where w.seen_at < :before group by q.value
    on conflict (queue) do update set worked_at = excluded.worked_at where worked_at < excluded.worked_at
