-- Pending deliveries by queue and by the state in their own rows, and since when the oldest that is due waits. One scan;
-- leases and blocked streams, which are few, are counted apart (op_counts_leased, op_counts_blocked).
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now)
select x.queue, x.state, count(*),
       min(case when x.state not in ('scheduled', 'parked') then coalesce(x.due_at, x.created_at) end)
  from (select m.queue, m.due_at, m.created_at,
               case when m.claimable_at = 'infinity' then 'parked'
                    when m.position is not null and not m.head then 'waiting'
                    when m.vanished > 0 then 'suspect'
                    when m.claimable_at <= n.now then 'ready'
                    when m.failures > 0 then 'retrying' else 'scheduled' end as state
          from moment n cross join holdfast.message m where m.queue is not null) x
 group by x.queue, x.state
