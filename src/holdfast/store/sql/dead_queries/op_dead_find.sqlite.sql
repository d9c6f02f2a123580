-- Dead letters. Conditions, order and limit are appended.
select d.seq, d.id, d.queue, d.type, d.stream, d.position, d.subject, d.status, d.epoch, d.attempts, d.failures, d.vanished,
       d.refunds, d.redrives, d.reason, d.last_reason, d.worker, d.created_at, d.due_at, d.deadline, d.died_at,
       d.fingerprint, d.held_at, d.held_why, d.stored_at, case when json_valid(d.errors) then json_extract(d.errors, '$[#-1].text') end,
       exists (select 1 from holdfast_stream s where s.queue = d.queue and s.name = d.stream and s.halted_by = d.id
                  and s.halted_at = d.died_at)
  from holdfast_dead d
