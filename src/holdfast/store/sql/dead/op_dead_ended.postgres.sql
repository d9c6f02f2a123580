-- One row of the history for each dead letter that is discarded or archived.
insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject,
                              why)
select coalesce(:now::timestamptz, clock_timestamp()), coalesce(due_at, created_at), id, status, attempts, failures,
       :outcome::text, queue, type, stream, subject, :why::text
  from holdfast.dead where (id, queue, seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]))
