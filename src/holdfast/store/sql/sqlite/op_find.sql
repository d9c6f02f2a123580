-- Pending deliveries that match; a filter that is null does not count. The order and the limit are put behind it.
select d.seq, d.id, d.queue, d.type, d.state, d.stream, d.position, d.head, d.subject, d.status, d.epoch, d.attempts,
       d.failures, d.vanished, d.refunds, d.redrives, d.reason, d.created_at, d.due_at, d.deadline, d.claimable_at,
       d.target, d.worker, d.until, json_extract(d.errors, '$[#-1].text')
  from delivery d
 where (:queue is null or d.queue = :queue) and (:type is null or d.type = :type)
   and (:stream is null or d.stream = :stream) and (:reason is null or d.reason = :reason)
   and (:states is null or d.state in (select value from json_each(:states)))
   and (d.attempts >= :attempts and d.status & :flags = :flags)
