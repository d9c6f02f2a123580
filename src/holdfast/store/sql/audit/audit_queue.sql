-- What an operator may change about a queue.
select paused_at, paused_why from holdfast.queue where name = :name
