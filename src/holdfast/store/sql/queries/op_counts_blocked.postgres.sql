-- How many of those that wait behind others in op_counts are blocked: their stream is halted, or its head is neither
-- claimable now nor leased. Streams with nothing behind their head are not read.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now)
select s.queue, sum(s.open - (case when h.seq is null then 0 else 1 end))
  from moment n cross join holdfast.stream s
  left join holdfast.message h on h.queue = s.queue and h.stream = s.name and h.head and h.position is not null
  left join holdfast.lease l on l.seq = h.seq
 where (s.open > 1 or (s.open > 0 and s.halted_by is not null))
   and (h.seq is null or l.until < n.now or (l.seq is null and (h.claimable_at > n.now or h.vanished > 0)))
 group by s.queue
