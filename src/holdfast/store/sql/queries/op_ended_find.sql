-- Rows of the history. Conditions, order and limit are appended.
select d.id, d.queue, d.type, d.stream, d.subject, d.outcome, d.ended_at, d.started_at, d.due_at, d.attempts, d.failures,
       d.status, d.why
  from holdfast.history d
