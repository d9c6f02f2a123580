-- What is scheduled in each queue: due and not brought over yet, due later, parked, each counted up to a limit through an
-- index; since when the oldest is due. Queues are found one after another by that index.
with recursive found (name) as (
    select (select s.queue from holdfast.scheduled s order by s.queue limit 1)
     union all
    select (select s.queue from holdfast.scheduled s where s.queue > f.name order by s.queue limit 1)
      from found f where f.name is not null)
select f.name,
       (select count(*) from (select 1 from holdfast.scheduled s where s.queue = f.name and s.claimable_at <= (select :now)
         limit :cap::int) x),
       (select count(*) from (select 1 from holdfast.scheduled s where s.queue = f.name and s.claimable_at > (select :now)
           and s.claimable_at < 'infinity' limit :cap::int) x),
       (select count(*) from (select 1 from holdfast.scheduled s where s.queue = f.name and s.claimable_at = 'infinity'
         limit :cap::int) x),
       (select s.claimable_at from holdfast.scheduled s where s.queue = f.name and s.claimable_at <= (select :now)
         order by s.claimable_at limit 1)
  from found f where f.name is not null
