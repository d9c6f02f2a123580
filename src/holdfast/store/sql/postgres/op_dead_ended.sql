-- One line of history for a dead letter that is discarded.
insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject)
select coalesce(:now::timestamptz, clock_timestamp()), coalesce(due_at, created_at), id, status, attempts, failures,
       'discarded', queue, type, stream, subject
  from holdfast.dead where id = :id::uuid and queue = :queue
