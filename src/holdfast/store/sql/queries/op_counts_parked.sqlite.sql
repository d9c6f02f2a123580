-- How many parked messages wait behind others in blocked streams: they are parked and not blocked. They are few, and
-- the index of streams would read every row in turn.
select m.queue, count(*)
  from holdfast_message m not indexed
  left join holdfast_message h on h.queue = m.queue and h.stream = m.stream and h.head and h.position is not null
  left join holdfast_lease l on l.seq = h.seq
 where m.claimable_at = 9223372036854775807 and m.position is not null and not m.head
   and (h.seq is null or l.until < :now or (l.seq is null and (h.claimable_at > :now or h.vanished > 0)))
 group by m.queue
