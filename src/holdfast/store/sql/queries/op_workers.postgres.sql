-- Workers with their leases, those seen most recently first.
select w.id, w.name, w.started_at, w.seen_at, to_json(w.queues), w.asleep, w.stopping,
       (select count(*) from holdfast.lease l where l.worker = w.id)
  from holdfast.worker w order by w.seen_at desc limit :limit::int
