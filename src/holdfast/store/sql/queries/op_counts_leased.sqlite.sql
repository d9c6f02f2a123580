-- How leases change the states in op_counts: by queue and by the state of the row, how many are leased or,
-- if the lease has expired, are suspects; and how many others are in their runs. It begins with the leases, which are few.
select x.queue, x.state, x.live, count(*), sum(x.followers)
  from (select m.queue, l.until >= :now as live,
               case when m.claimable_at = 9223372036854775807 then 'parked'
                    when m.position is not null and not m.head then 'waiting'
                    when m.vanished > 0 then 'suspect'
                    when m.claimable_at <= :now then 'ready'
                    when m.failures > 0 then 'retrying' else 'scheduled' end as state,
               case when l.until >= :now and l.run_end > m.position then
                   (select count(*) from holdfast_message f where f.queue = m.queue and f.stream = m.stream
                       and f.position > m.position and f.position <= l.run_end) else 0 end as followers
          from holdfast_lease l cross join holdfast_message m on m.seq = l.seq) x
 group by x.queue, x.state, x.live
