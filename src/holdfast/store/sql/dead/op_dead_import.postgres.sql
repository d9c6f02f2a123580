-- Dead letters that come from a file. Those that are here already, dead or pending, are left alone, if they are
-- visible: the statement may wait for a command that removes one. It is the same message if id and time are the same:
-- it may have another number since. One whose number another message has here gets the next. Answers those stored.
insert into holdfast.dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts,
                           failures, vanished, refunds, redrives, reason, last_reason, worker, created_at, due_at,
                           deadline, died_at, fingerprint, held_at, held_why, errors, headers, body, stored_at, traceback)
select x.id, x.queue,
       case when exists (select 1 from holdfast.dead d where d.id = x.id and d.queue = x.queue and d.seq = x.seq)
            then (select max(d.seq) + 1 from holdfast.dead d where d.id = x.id and d.queue = x.queue) else x.seq end,
       x.type, x.stream, x.position, x.subject, x.dedupe, x.status, x.epoch, x.attempts,
       x.failures, x.vanished, x.refunds, x.redrives, x.reason, x.last_reason, x.worker, x.created_at, x.due_at,
       x.deadline, x.died_at, x.fingerprint, x.held_at, x.held_why, x.errors, x.headers, x.body,
       coalesce(:now::timestamptz, clock_timestamp()), x.traceback
  from json_to_recordset(:letters::json) as x (
       id uuid, queue text, seq bigint, type text, stream text, position bigint, subject text, dedupe text, status
       int, epoch int, attempts int, failures int, vanished int, refunds int, redrives int, reason int, last_reason
       int, worker text, created_at timestamptz, due_at timestamptz, deadline timestamptz, died_at timestamptz,
       fingerprint text, held_at timestamptz, held_why text, errors jsonb, headers text, body text, traceback text)
 where not exists (select 1 from holdfast.pending m where m.id = x.id and m.queue = x.queue
                      and coalesce(m.due_at, m.created_at) = coalesce(x.due_at, x.created_at))
   and not exists (select 1 from holdfast.dead d where d.id = x.id and d.queue = x.queue
                      and coalesce(d.due_at, d.created_at) = coalesce(x.due_at, x.created_at))
    on conflict (id, queue, seq) do nothing
returning id, queue, seq, coalesce(due_at, created_at)
