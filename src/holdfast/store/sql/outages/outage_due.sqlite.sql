-- By queue: since when its oldest message is due, leased or not, including suspects. Of
-- scheduled messages that were not brought over yet, the oldest 10,000 are read. Schedules that are due count as timers,
-- unless no program has them in its code any more. Queues are found one after another by
-- the index of claims, each by its first head.
with recursive names as (
    select min(queue) as queue from holdfast_message where head and vanished = 0
     union all
    select (select min(m.queue) from holdfast_message m where m.queue > n.queue and m.head and m.vanished = 0)
      from names n where n.queue is not null limit :queues)
select x.queue, min(x.at) from (
    select n.queue, (select o.claimable_at from holdfast_message o where o.queue = n.queue and o.head and o.vanished = 0
                      order by o.claimable_at, o.seq limit 1) as at
      from names n where n.queue is not null
     union all
    select m.queue, min(m.claimable_at) from holdfast_message m where m.head and m.vanished > 0 group by m.queue
     union all
    select o.queue, min(o.claimable_at)
      from (select s.queue, s.claimable_at from holdfast_scheduled s
             where s.claimable_at <= :now order by s.claimable_at limit 10000) o group by o.queue
     union all
    select 'holdfast/timer', min(s.next_at) from holdfast_schedule s
     where s.next_at <= :now and (s.origin = 'call' or s.declared_at >= :now - 120000000)) x
  left join holdfast_queue q on q.name = x.queue
 where x.at <= :now and q.paused_at is null group by x.queue
