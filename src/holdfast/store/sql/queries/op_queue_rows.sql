-- Queues that are known by name, and which of them are paused.
select name, paused_at, paused_why from holdfast.queue order by name
