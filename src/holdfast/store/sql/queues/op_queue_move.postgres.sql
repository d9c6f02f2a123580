-- Copy messages to another queue, each stream in its order. They get their places when all are there (op_place).
insert into holdfast.message (claimable_at, created_at, due_at, deadline, id, xact, status, epoch, attempts, failures,
                              vanished, refunds, redrives, reason, head, queue, plain, type, stream, subject, dedupe, errors,
                              headers, body, traceback)
select greatest(x.claimable_at, coalesce(:now::timestamptz, clock_timestamp())), x.created_at, x.due_at, x.deadline, x.id,
       case when x.position is not null then pg_current_xact_id() end, x.status, least(x.epoch, 2147483646) + 1, x.attempts, x.failures,
       x.vanished, x.refunds, x.redrives, x.reason, x.position is null, :target, null, x.type, x.stream, x.subject, x.dedupe,
       x.errors, x.headers, x.body, x.traceback
  from (select m.* from holdfast.message m where m.seq = any (:seqs::bigint[]) order by m.position nulls first, m.seq) x
returning seq
