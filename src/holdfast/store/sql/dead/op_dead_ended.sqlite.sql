-- One row of the history for each dead letter that is discarded or archived.
insert into holdfast_history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject,
                              why)
select :now, coalesce(due_at, created_at), id, status, attempts, failures, :outcome, queue, type, stream, subject, :why
  from holdfast_dead
 where (id, queue, seq) in (
     select i.value, q.value, n.value
       from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key)
