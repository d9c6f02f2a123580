-- All deaths of messages, the first ones first.
select d.id, d.queue, d.died_at, d.seq, d.type, d.reason, d.last_reason, d.fingerprint, d.worker, d.error, d.body
  from holdfast.death d where d.id = any (:ids::uuid[]) order by d.died_at, d.queue, d.seq
