-- Dead letters with everything, in the order in which they are named.
select d.id, d.queue, d.seq, d.type, d.stream, d.position, d.subject, d.dedupe, d.status, d.epoch, d.attempts,
       d.failures, d.vanished, d.refunds, d.redrives, d.reason, d.last_reason, d.worker, d.created_at, d.due_at,
       d.deadline, d.died_at, d.fingerprint, d.held_at, d.held_why, d.stored_at, d.errors, d.headers, d.body, d.traceback
  from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]) with ordinality u (id, queue, seq, n)
  join holdfast.dead d on d.id = u.id and d.queue = u.queue and d.seq = u.seq order by u.n
