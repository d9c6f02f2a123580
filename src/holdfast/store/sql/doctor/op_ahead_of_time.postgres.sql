-- The latest time of anything that has happened, by the stored rows. History is left out: it has no index for that.
select max(x.at) from (
    select max(seen_at) as at from holdfast.worker
     union all
    (select created_at from holdfast.message order by seq desc limit 1)
     union all
    select max(died_at) from holdfast.dead) x
