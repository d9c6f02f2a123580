-- Which queues have heads at all, by skipping through the claim index: so many at most.
with recursive q (name, n) as (
    select min(queue), 1 from holdfast_message where head and vanished = 0 and queue is not null
     union all
    select (select min(m.queue) from holdfast_message m where m.head and m.vanished = 0 and m.queue > q.name), q.n + 1
      from q where q.name is not null and q.n < :most)
select q.name from q where q.name is not null
