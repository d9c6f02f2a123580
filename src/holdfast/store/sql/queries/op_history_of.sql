-- How the deliveries of one message ended.
select queue, type, stream, subject, outcome, ended_at, started_at, due_at, attempts, failures, status, why, origin
  from holdfast.history where id = :id::uuid order by ended_at, queue limit 1000
