-- One line of history for each of these messages, which end without having been handled.
insert into holdfast_history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject,
                              why)
select :now, coalesce(due_at, created_at), id, status, attempts, failures,
       :outcome, coalesce(queue, ''), type, stream, subject, :why
  from holdfast_message where seq in (select value from json_each(:seqs))
