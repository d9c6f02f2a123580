-- How many seconds ago each worker was seen, and its queues.
select id, (:now - seen_at) / 1000000.0, queues from holdfast_worker
