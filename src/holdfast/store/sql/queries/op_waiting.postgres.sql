-- How many messages wait to be handled, in queues that are not paused; counted up to a limit.
select count(*) from (
    select 1 from holdfast.message m
     where m.claimable_at <= coalesce(:now::timestamptz, clock_timestamp())
       and not exists (select 1 from holdfast.queue q where q.name = m.queue and q.paused_at is not null)
     limit :cap::int) x
