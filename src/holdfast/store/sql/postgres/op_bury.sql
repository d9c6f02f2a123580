-- A message moves to the dead letters by hand, as poison, with everything known about it.
insert into holdfast.dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures,
                           vanished, refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at,
                           errors, headers, body)
select id, queue, seq, type, stream, position, subject, dedupe, status | 32768, epoch + 1, attempts, failures,
       vanished, refunds, redrives, 7, reason, created_at, due_at, deadline,
       coalesce(:now::timestamptz, clock_timestamp()),
       holdfast.with_error(errors, coalesce(:now::timestamptz, clock_timestamp()), 7, :why, :keep::int), headers, body
  from holdfast.message where seq = :seq
