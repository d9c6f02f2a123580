-- One line of history for a dead letter that is discarded.
insert into holdfast_history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject)
select :now, coalesce(due_at, created_at), id, status, attempts, failures,
       'discarded', queue, type, stream, subject
  from holdfast_dead where id = :id and queue = :queue
