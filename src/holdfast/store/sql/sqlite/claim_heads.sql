-- The oldest claimable heads of one queue that nobody holds. Bodies are read when it is known which are handed out.
select m.seq, m.position, m.epoch + 1, length(cast(m.body as blob)), m.queue, m.stream
  from holdfast_message m
 where m.queue = :queue and m.head and m.vanished = 0 and m.claimable_at <= :now
   and (m.claimable_at, m.seq) > (:after_at, :after_seq)
   and not exists (select 1 from holdfast_lease l where l.seq = m.seq)
 order by m.claimable_at, m.seq limit :heads
