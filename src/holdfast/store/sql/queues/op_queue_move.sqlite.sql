-- Copy messages to another queue, each stream in its order. They get their places when all are there.
insert into holdfast_message (claimable_at, created_at, due_at, deadline, id, xact, status, epoch, attempts, failures,
                              vanished, refunds, redrives, reason, head, queue, plain, type, stream, subject, dedupe, errors,
                              headers, body, traceback)
select max(claimable_at, :now), created_at, due_at, deadline, id,
       case when position is not null then 2 end, status, min(epoch, 2147483646) + 1, attempts, failures,
       vanished, refunds, redrives, reason, position is null, :target, null, type, stream, subject, dedupe,
       errors, headers, body, traceback
  from holdfast_message where seq in (select value from json_each(:seqs)) order by position nulls first, seq
returning seq
