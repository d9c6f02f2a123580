-- The next messages of a stream after its head, and whether each may be handed out.
select m.seq, m.id, m.queue, m.type, m.body, m.stream, m.position, m.subject, m.headers,
       cast(m.status as integer), m.attempts, cast(m.failures as integer), cast(m.vanished as integer),
       cast(m.refunds as integer), m.created_at, m.due_at, m.deadline, min(m.epoch, 2147483646) + 1, :run, length(cast(m.body as blob)),
       m.claimable_at <= :now and m.vanished = 0
  from holdfast_message m
 where m.queue = :queue and m.stream = :stream and m.position > :position
 order by m.position limit :count
