-- The oldest claimable heads of one queue that are not leased.
select m.seq, m.id, m.queue, m.type, m.body, m.stream, m.position, m.subject, m.headers,
       cast(m.status as integer), m.attempts, cast(m.failures as integer), cast(m.vanished as integer),
       cast(m.refunds as integer), m.created_at, m.due_at, m.deadline, min(m.epoch, 2147483646) + 1, m.seq, length(cast(m.body as blob))
  from holdfast_message m
 where m.queue = :queue and m.head and m.vanished = 0 and m.claimable_at <= :now
   and (m.claimable_at, m.seq) > (:after_at, :after_seq)
   and not exists (select 1 from holdfast_lease l where l.seq = m.seq)
 order by m.claimable_at, m.seq limit :heads
