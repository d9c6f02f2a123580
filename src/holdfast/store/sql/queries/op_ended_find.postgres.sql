-- Messages that have ended, with the seconds that they began late. Which, in which order and how many, is put behind it.
select e.id, e.queue, e.type, e.stream, e.subject, e.outcome, e.ended_at, e.started_at, e.due_at, e.attempts, e.failures,
       e.why, e.late
  from (select h.*, extract(epoch from h.started_at - h.due_at)::float8 as late from holdfast.history h) e
