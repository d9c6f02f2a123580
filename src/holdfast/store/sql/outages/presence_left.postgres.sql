-- A worker leaves: its queues had one until now, or until it was last seen if it has died.
insert into holdfast.presence as p (queue, worked_at)
select q.name, case when :died::boolean then max(w.seen_at) else coalesce(:now::timestamptz, clock_timestamp()) end
  from holdfast.worker w cross join lateral pg_catalog.unnest(w.queues) q (name) where w.id = :worker::bigint group by q.name order by q.name
    on conflict (queue) do update set worked_at = greatest(p.worked_at, excluded.worked_at)
