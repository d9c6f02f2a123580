-- One row of the history for each of these messages, which end without having been handled.
insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject,
                              why)
select :now, coalesce(due_at, created_at), id, status, attempts, failures,
       :outcome::text, coalesce(queue, ''), type, stream, subject, :why::text
  from holdfast.message where seq = any (:seqs::bigint[])
