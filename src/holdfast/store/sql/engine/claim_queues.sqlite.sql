-- Which queues have heads at all, by skipping through the claim index.
with recursive q (name) as (
    select min(queue) from holdfast_message where head and vanished = 0 and queue is not null
     union all
    select (select min(m.queue) from holdfast_message m where m.head and m.vanished = 0 and m.queue > q.name)
      from q where q.name is not null)
select q.name from q left join holdfast_queue p on p.name = q.name
 where q.name is not null and p.paused_at is null
