-- When the workers that are known were last seen, by what they serve.
select q.value, max(w.seen_at) from holdfast_worker w join json_each(w.queues) q group by q.value
