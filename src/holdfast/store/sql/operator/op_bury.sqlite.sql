-- A message moves to the dead letters by hand, as poison, with everything known about it. An earlier dead
-- letter with the same id stays as it is: they have different numbers. Its last reason is
-- poison, too, so no policy for its earlier failure redrives it.
insert into holdfast_dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures,
                           vanished, refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at,
                           errors, headers, body, fingerprint, traceback)
select id, queue,
       case when exists (select 1 from holdfast_dead d where d.id = m.id and d.queue = m.queue and d.seq = m.seq)
            then (select max(d.seq) + 1 from holdfast_dead d where d.id = m.id and d.queue = m.queue) else seq end,
       type, stream, position, subject, dedupe, status | 32768, min(epoch, 2147483646) + 1, attempts, failures,
       vanished, refunds, redrives, 7, 7, created_at, due_at, deadline, :now, :errors, headers, body,
       :fingerprint, (select t.traceback from holdfast_message t where t.seq = m.seq)
  from holdfast_sound m where seq = :seq
