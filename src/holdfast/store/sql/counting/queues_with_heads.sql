-- The queues that have heads: one index lookup for each of them.
with recursive found (name) as (
    select (select m.queue from holdfast.message m where m.head and m.vanished = 0 and m.queue is not null
             order by m.queue limit 1)
     union all
    select (select m.queue from holdfast.message m where m.head and m.vanished = 0 and m.queue > f.name
             order by m.queue limit 1)
      from found f where f.name is not null)
select name from found where name is not null
