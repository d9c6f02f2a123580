-- Dead letters with everything, in the order in which they are named.
select d.id, d.queue, d.seq, d.type, d.stream, d.position, d.subject, d.dedupe, d.status, d.epoch, d.attempts,
       d.failures, d.vanished, d.refunds, d.redrives, d.reason, d.last_reason, d.worker, d.created_at, d.due_at,
       d.deadline, d.died_at, d.fingerprint, d.held_at, d.held_why, d.stored_at, d.errors, d.headers, d.body, d.traceback
  from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:numbers) n on n.key = i.key
  join holdfast_dead d on d.id = i.value and d.queue = q.value and d.seq = n.value order by i.key
