-- How many parked messages wait behind others in blocked streams: they are parked and not blocked.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now)
select m.queue, count(*)
  from moment n cross join holdfast.message m
  left join holdfast.message h on h.queue = m.queue and h.stream = m.stream and h.head and h.position is not null
  left join holdfast.lease l on l.seq = h.seq
 where m.claimable_at = 'infinity' and m.position is not null and not m.head
   and (h.seq is null or l.until < n.now or (l.seq is null and (h.claimable_at > n.now or h.vanished > 0)))
 group by m.queue
