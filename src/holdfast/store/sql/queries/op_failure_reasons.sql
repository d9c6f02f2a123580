-- How many failed messages there are of each reason: pending ones by their last failure, dead letters too.
select x.reason, sum(x.pending)::int, sum(x.dead)::int from (
    select coalesce(reason, 99) as reason, 1 as pending, 0 as dead from holdfast.message where status & 32768 = 32768
     union all
    select coalesce(last_reason, reason), 0, 1 from holdfast.dead) x
 group by x.reason order by count(*) desc, x.reason
