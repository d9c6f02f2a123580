-- How many seconds ago each worker was seen, and its queues.
select id, extract(epoch from coalesce(:now::timestamptz, clock_timestamp()) - seen_at)::float8, queues from holdfast.worker
