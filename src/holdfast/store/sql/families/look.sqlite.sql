-- Queues of a family that have heads, and when the first of each is claimable, by skipping through the claim index.
with recursive q (name, n) as (
    select min(m.queue), 1 from holdfast_message m
     where m.head and m.vanished = 0 and m.queue > :after and m.queue < :family || '0'
     union all
    select (select min(m.queue) from holdfast_message m
             where m.head and m.vanished = 0 and m.queue > q.name and m.queue < :family || '0'), q.n + 1
      from q where q.name is not null and q.n < :count)
select q.name, (select m.claimable_at from holdfast_message m where m.queue = q.name and m.head and m.vanished = 0
                 order by m.claimable_at, m.seq limit 1)
  from q where q.name is not null
