-- Record that a worker of these queues is running now.
insert into holdfast.presence as p (queue, worked_at)
select u.queue, coalesce(:now::timestamptz, clock_timestamp()) from pg_catalog.unnest(:queues::text[]) u (queue) group by u.queue order by u.queue
    on conflict (queue) do update set worked_at = greatest(p.worked_at, excluded.worked_at)
