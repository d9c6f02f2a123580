-- Pending deliveries. Conditions, order and limit are appended.
select d.seq, d.id, d.queue, d.type, d.state, d.stream, d.position, d.head, d.subject, d.status, d.epoch, d.attempts,
       d.failures, d.vanished, d.refunds, d.redrives, d.reason, d.created_at, d.due_at, d.deadline, d.claimable_at,
       d.target, d.worker, d.until, case when json_valid(d.errors) then json_extract(d.errors, '$[#-1].text') end
  from delivery d
