-- Dead letters that match, by when they died; a filter that is null does not count. The reason is that of the last
-- failure. The order and the limit are put behind it.
select d.id, d.queue, d.type, d.stream, d.position, d.subject, d.status, d.epoch, d.attempts, d.failures, d.vanished,
       d.refunds, d.redrives, d.reason, d.last_reason, d.worker, d.created_at, d.due_at, d.deadline, d.died_at,
       json_extract(d.errors, '$[#-1].text'),
       exists (select 1 from holdfast_stream s where s.queue = d.queue and s.name = d.stream and s.halted_by = d.id)
  from holdfast_dead d
 where (:queue is null or d.queue = :queue) and (:type is null or d.type = :type)
   and (:stream is null or d.stream = :stream)
   and (:reason is null or coalesce(d.last_reason, d.reason) = :reason)
