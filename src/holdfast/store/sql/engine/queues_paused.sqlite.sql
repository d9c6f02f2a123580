-- The paused queues, of which nothing is handed out.
select name from holdfast_queue where paused_at is not null
