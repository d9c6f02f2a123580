-- The pending deliveries of a message, and whether they wait for their time: their attempts, and whether parked.
select m.seq, m.queue, m.claimable_at, m.attempts + m.failures + m.vanished + m.refunds,
       m.claimable_at = 9223372036854775807, m.position is not null
  from holdfast_message m where m.id = :id order by m.seq
