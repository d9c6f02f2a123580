-- Messages that are moved become dead letters of the other queue where another message with the same id is pending there.
insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at, errors, headers, body)
select m.id, t.queue, holdfast.dead_number(m.id, t.queue, m.seq), m.type, m.stream, m.subject, m.dedupe,
       m.status | 32768, least(m.epoch, 2147483646) + 1, m.attempts, m.failures, m.vanished, m.refunds, m.redrives, 12, m.reason,
       m.created_at, m.due_at, m.deadline, coalesce(:now::timestamptz, clock_timestamp()),
       holdfast.with_error(m.errors, coalesce(:now::timestamptz, clock_timestamp()), 12, holdfast.taken(t.id, t.queue),
                           :keep::int), m.headers, m.body
  from holdfast.message m join holdfast.message t on t.id = m.id and t.queue = :target
 where m.seq = any (:seqs::bigint[])
