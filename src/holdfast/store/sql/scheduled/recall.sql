-- Scheduled messages come back into `message` as they are, so that a command about them finds them there. One whose id has
-- been taken in its queue in the meantime stays.
insert into holdfast.message (seq, claimable_at, created_at, due_at, deadline, id, status, epoch, head, queue, plain, type, stream,
                              subject, dedupe, target, headers, body)
select s.seq, s.claimable_at, s.created_at, s.due_at, s.deadline, s.id, s.status, s.epoch, true, s.queue, null, s.type, s.stream,
       s.subject, s.dedupe, s.target, s.headers, s.body
  from holdfast.scheduled s
 where s.seq = any (:seqs::bigint[])
   and not exists (select 1 from holdfast.message m where m.id = s.id and m.queue = s.queue)
