-- When the workers that are known were last seen, by what they serve.
select q.name, max(w.seen_at) from holdfast.worker w cross join lateral pg_catalog.unnest(w.queues) q (name) group by q.name
