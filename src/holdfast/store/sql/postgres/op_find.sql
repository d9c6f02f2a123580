-- Pending deliveries that match; a filter that is null does not count. The order and the limit are put behind it.
select d.seq, d.id, d.queue, d.type, d.state, d.stream, d.position, d.head, d.subject, d.status, d.epoch, d.attempts,
       d.failures, d.vanished, d.refunds, d.redrives, d.reason, d.created_at, d.due_at, d.deadline, d.claimable_at,
       d.target, d.worker, d.until, d.errors -> -1 ->> 'text'
  from delivery d
 where (:queue::text is null or d.queue = :queue) and (:type::text is null or d.type = :type)
   and (:stream::text is null or d.stream = :stream) and (:reason::int is null or d.reason = :reason)
   and (:states::text[] is null or d.state = any (:states::text[]))
   and (d.attempts >= :attempts and d.status & :flags = :flags)
