-- One row of the history for a message that ended without being done.
insert into holdfast_history (ended_at, started_at, due_at, id, status, attempts, failures, outcome, queue, type, stream,
                              subject, origin)
select :now, case when :ran is not null then :now - 1000 * :ran end, coalesce(due_at, created_at), id, status | :flags,
       attempts + :counted, failures + :failed, :outcome, coalesce(queue, ''), type, stream, subject,
       case when unicode(dedupe) = 31 then dedupe end
  from holdfast_message where seq = :seq
