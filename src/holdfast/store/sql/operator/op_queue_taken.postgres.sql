-- Messages that are moved become dead letters of the other queue: another message with the same id was pending there
-- before. It may have ended since, so that is not checked again: each of ours must be kept.
insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at, errors, headers, body, traceback)
select m.id, :target::text, holdfast.dead_number(m.id, :target::text, m.seq), m.type, m.stream, m.subject, m.dedupe,
       m.status | 32768, least(m.epoch, 2147483646) + 1, m.attempts, m.failures, m.vanished, m.refunds, m.redrives, 12, m.reason,
       m.created_at, m.due_at, m.deadline, coalesce(:now::timestamptz, clock_timestamp()),
       holdfast.with_error(m.errors, coalesce(:now::timestamptz, clock_timestamp()), 12, holdfast.taken(m.id, :target::text),
                           :keep::int), m.headers, m.body, m.traceback
  from holdfast.message m where m.seq = any (:seqs::bigint[])
