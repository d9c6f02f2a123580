-- By queue: since when its oldest message is due, leased or not, including suspects. Of
-- scheduled messages that were not brought over yet, the oldest 10,000 are read. Schedules that are due count as timers,
-- unless no program has them in its code any more. Queues are found one after another by
-- the index of claims, each by its first head.
with recursive names as (
    (select m.queue from holdfast.message m where m.head and m.vanished = 0 and m.queue is not null
      order by m.queue limit 1)
     union all
    select (select m.queue from holdfast.message m where m.queue > n.queue and m.head and m.vanished = 0
             order by m.queue limit 1)
      from names n where n.queue is not null)
select x.queue, min(x.at) from (
    select n.queue, m.at from (select queue from names where queue is not null limit :queues::int) n
     cross join lateral (
           select o.claimable_at as at from holdfast.message o where o.queue = n.queue and o.head and o.vanished = 0
            order by o.claimable_at, o.seq limit 1) m
     union all
    select m.queue, min(m.claimable_at) from holdfast.message m where m.head and m.vanished > 0 group by m.queue
     union all
    select o.queue, min(o.claimable_at)
      from (select s.queue, s.claimable_at from holdfast.scheduled s
             where s.claimable_at <= (select coalesce(:now::timestamptz, clock_timestamp()))
             order by s.claimable_at limit 10000) o group by o.queue
     union all
    select 'holdfast/timer', min(s.next_at) from holdfast.schedule s
     where s.next_at <= (select coalesce(:now::timestamptz, clock_timestamp()))
       and (s.origin = 'call' or s.declared_at >= coalesce(:now::timestamptz, clock_timestamp()) - interval '2 minutes')) x
  left join holdfast.queue q on q.name = x.queue
 where x.at <= coalesce(:now::timestamptz, clock_timestamp()) and q.paused_at is null group by x.queue
