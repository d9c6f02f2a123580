-- The pending deliveries of one message, with everything that is known of them.
select d.seq, d.id, d.queue, d.type, d.state, d.stream, d.position, d.head, d.subject, d.status, d.epoch, d.attempts,
       d.failures, d.vanished, d.refunds, d.redrives, d.reason, d.created_at, d.due_at, d.deadline, d.claimable_at,
       d.target, d.worker, d.until, d.errors -> -1 ->> 'text'::text, d.errors, d.headers, d.body, d.dedupe, d.traceback
  from delivery d where d.id = :id::uuid order by d.queue
