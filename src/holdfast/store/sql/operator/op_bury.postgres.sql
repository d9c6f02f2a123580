-- A message moves to the dead letters by hand, as poison, with everything known about it. An earlier dead
-- letter with the same id stays as it is: they have different numbers. Its last reason is
-- poison, too, so no policy for its earlier failure redrives it.
insert into holdfast.dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures,
                           vanished, refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at,
                           errors, headers, body, fingerprint, traceback)
select id, queue, holdfast.dead_number(id, queue, seq), type, stream, position, subject, dedupe, status | 32768, least(epoch, 2147483646) + 1, attempts, failures,
       vanished, refunds, redrives, 7, 7, created_at, due_at, deadline,
       coalesce(:now::timestamptz, clock_timestamp()),
       holdfast.with_error(errors, coalesce(:now::timestamptz, clock_timestamp()), 7, :why, :keep::int), headers, body,
       :fingerprint::text, traceback
  from holdfast.message where seq = :seq
