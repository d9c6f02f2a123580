-- Messages that are due later than `soon`, and those that wait for their time in `holdfast/timer`, are moved to
-- `scheduled`, if they were never tried and are not leased.
insert into holdfast.scheduled (seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream, subject,
                                dedupe, target, headers, body)
select m.seq, m.claimable_at, m.created_at, m.due_at, m.deadline, m.id, m.status, m.epoch, m.queue, m.type, m.stream, m.subject,
       m.dedupe, m.target, m.headers, m.body
  from holdfast.message m
 where m.seq = any (:seqs::bigint[])
   and (m.queue = 'holdfast/timer'
        or (m.claimable_at > :soon::timestamptz and m.claimable_at < 'infinity' and m.queue is not null and m.head
            and m.position is null and m.attempts = 0 and m.failures = 0 and m.vanished = 0 and m.refunds = 0))
   and not exists (select 1 from holdfast.lease l where l.seq = m.seq)
