-- The pending deliveries of a message, locked, and whether they wait for their time: their attempts, and whether parked.
select m.seq, m.queue, nullif(m.claimable_at, 'infinity'), m.attempts + m.failures + m.vanished + m.refunds,
       m.claimable_at = 'infinity', m.position is not null
  from holdfast.message m where m.id = :id::uuid order by m.seq for update
