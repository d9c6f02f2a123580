-- By queue: the oldest claimable message without a lease, and how many wait longer than
-- allowed. Queues are found one after another by the index of claims, each by its first head.
with recursive names as (
    (select m.queue from holdfast.message m where m.head and m.vanished = 0 and m.queue is not null
      order by m.queue limit 1)
     union all
    select (select m.queue from holdfast.message m where m.queue > n.queue and m.head and m.vanished = 0
             order by m.queue limit 1)
      from names n where n.queue is not null)
select n.queue, q.paused_at is not null, m.id, m.claimable_at,
       (select count(*) from (
            select 1 from holdfast.message o where o.queue = n.queue and o.head and o.vanished = 0
               and o.claimable_at <= :before::timestamptz and o.failures = 0
               and not exists (select 1 from holdfast.lease l where l.seq = o.seq) limit :limit::int) x)
  from (select queue from names where queue is not null limit :queues::int) n
 cross join lateral (
       select o.id, o.claimable_at from holdfast.message o where o.queue = n.queue and o.head and o.vanished = 0
          and o.claimable_at <= (select coalesce(:now::timestamptz, clock_timestamp()))
          and not exists (select 1 from holdfast.lease l where l.seq = o.seq)
        order by o.claimable_at, o.seq limit 1) m
  left join holdfast.queue q on q.name = n.queue
 order by m.claimable_at
