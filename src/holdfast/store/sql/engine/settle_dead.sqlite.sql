-- A message moves to the dead letters, with everything known about it. An earlier dead letter with the same id stays
-- as it is: they have different numbers. (Only a file can bring a number that is used again.)
insert into holdfast_dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures,
                           vanished, refunds, redrives, reason, last_reason, worker, created_at, due_at, deadline,
                           died_at, errors, headers, body, fingerprint, traceback)
select id, queue,
       case when exists (select 1 from holdfast_dead d where d.id = m.id and d.queue = m.queue and d.seq = m.seq)
            then (select max(d.seq) + 1 from holdfast_dead d where d.id = m.id and d.queue = m.queue) else seq end,
       type, stream, position, subject, dedupe, status | :flags, min(epoch, 2147483646) + 1, attempts + :counted,
       failures + :failed, case when :started then 0 else vanished end, refunds + :refunded, redrives, :reason,
       coalesce(:last_reason, reason),
       (select w.name from holdfast_lease l join holdfast_worker w on w.id = l.worker where l.seq = :run),
       created_at, due_at, deadline, :now, :errors, headers, body, :fingerprint,
       coalesce(:traceback, (select t.traceback from holdfast_message t where t.seq = :seq))
  from holdfast_sound m where seq = :seq
