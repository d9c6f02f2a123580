-- A message moves to the dead letters, with everything known about it. One who died
-- under the same id before gives way.
insert into holdfast_dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures,
                           vanished, refunds, redrives, reason, last_reason, worker, created_at, due_at, deadline,
                           died_at, errors, headers, body, fingerprint)
select id, queue, seq, type, stream, position, subject, dedupe, status | :flags, min(epoch, 2147483646) + 1, attempts + :counted,
       failures + :failed, case when :started then 0 else vanished end, refunds + :refunded, redrives, :reason,
       coalesce(:last_reason, reason),
       (select w.name from holdfast_lease l join holdfast_worker w on w.id = l.worker where l.seq = :run),
       created_at, due_at, deadline, :now, :errors, headers, body, :fingerprint
  from holdfast_sound where seq = :seq
    on conflict (id, queue) do update set
        seq = excluded.seq, type = excluded.type, stream = excluded.stream, position = excluded.position, subject = excluded.subject,
        dedupe = excluded.dedupe, status = excluded.status, epoch = excluded.epoch, attempts = excluded.attempts, failures = excluded.failures,
        vanished = excluded.vanished, refunds = excluded.refunds, redrives = excluded.redrives, reason = excluded.reason, last_reason = excluded.last_reason,
        worker = excluded.worker, created_at = excluded.created_at, due_at = excluded.due_at, deadline = excluded.deadline, died_at = excluded.died_at,
        errors = excluded.errors, headers = excluded.headers, body = excluded.body, fingerprint = excluded.fingerprint
