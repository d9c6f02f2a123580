-- How leases change the states in op_counts: by queue and by the state of the row, how many are leased or,
-- if the lease has expired, are suspects; and how many others are in their runs.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now)
select x.queue, x.state, x.live, count(*), sum(x.followers)
  from (select m.queue, l.until >= n.now as live,
               case when m.claimable_at = 'infinity' then 'parked'
                    when m.position is not null and not m.head then 'waiting'
                    when m.vanished > 0 then 'suspect'
                    when m.claimable_at <= n.now then 'ready'
                    when m.failures > 0 then 'retrying' else 'scheduled' end as state,
               case when l.until >= n.now and l.run_end > m.position then
                   (select count(*) from holdfast.message f where f.queue = m.queue and f.stream = m.stream
                       and f.position > m.position and f.position <= l.run_end) else 0 end as followers
          from moment n cross join holdfast.lease l join holdfast.message m on m.seq = l.seq) x
 group by x.queue, x.state, x.live
