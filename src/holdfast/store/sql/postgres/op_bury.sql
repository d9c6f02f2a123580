-- A message moves to the dead letters by hand, as poison, with everything known about it. One who died
-- under the same id before gives way. Its last reason is poison, too: no policy for what failed before brings it back.
insert into holdfast.dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures,
                           vanished, refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at,
                           errors, headers, body, fingerprint)
select id, queue, seq, type, stream, position, subject, dedupe, status | 32768, least(epoch, 2147483646) + 1, attempts, failures,
       vanished, refunds, redrives, 7, 7, created_at, due_at, deadline,
       coalesce(:now::timestamptz, clock_timestamp()),
       holdfast.with_error(errors, coalesce(:now::timestamptz, clock_timestamp()), 7, :why, :keep::int), headers, body,
       :fingerprint::text
  from holdfast.message where seq = :seq
    on conflict (id, queue) do update set
        seq = excluded.seq, type = excluded.type, stream = excluded.stream, position = excluded.position, subject = excluded.subject,
        dedupe = excluded.dedupe, status = excluded.status, epoch = excluded.epoch, attempts = excluded.attempts, failures = excluded.failures,
        vanished = excluded.vanished, refunds = excluded.refunds, redrives = excluded.redrives, reason = excluded.reason, last_reason = excluded.last_reason,
        worker = excluded.worker, created_at = excluded.created_at, due_at = excluded.due_at, deadline = excluded.deadline, died_at = excluded.died_at,
        errors = excluded.errors, headers = excluded.headers, body = excluded.body, fingerprint = excluded.fingerprint
