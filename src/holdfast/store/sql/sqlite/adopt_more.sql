-- A copy of an adopted message for another subscriber.
insert into holdfast_message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, type, stream,
                              subject, dedupe, headers, body)
select claimable_at, created_at, due_at, deadline, id, xact, status, head, :queue, type, stream, subject, dedupe, headers, body
  from holdfast_message where seq = :seq
