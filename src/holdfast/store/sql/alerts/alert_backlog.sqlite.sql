-- By queue: the oldest claimable message without a lease, and how many wait longer than
-- allowed. Queues are found one after another by the index of claims, each by its first head.
with recursive names as (
    select min(queue) as queue from holdfast_message where head and vanished = 0
     union all
    select (select min(m.queue) from holdfast_message m where m.queue > n.queue and m.head and m.vanished = 0)
      from names n where n.queue is not null limit :queues)
select n.queue, q.paused_at is not null, m.id, m.claimable_at,
       (select count(*) from (
            select 1 from holdfast_message o where o.queue = n.queue and o.head and o.vanished = 0
               and o.claimable_at <= :before and o.failures = 0
               and not exists (select 1 from holdfast_lease l where l.seq = o.seq) limit :limit))
  from names n
  join holdfast_message m on m.seq = (
       select o.seq from holdfast_message o where o.queue = n.queue and o.head and o.vanished = 0
          and o.claimable_at <= :now and not exists (select 1 from holdfast_lease l where l.seq = o.seq)
        order by o.claimable_at, o.seq limit 1)
  left join holdfast_queue q on q.name = n.queue
 order by m.claimable_at
