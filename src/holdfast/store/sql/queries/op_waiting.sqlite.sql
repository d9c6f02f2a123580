-- How many messages wait to be handled, in queues that are not paused; counted up to a limit.
select count(*) from (
    select 1 from holdfast_message m
     where m.claimable_at <= :now
       and not exists (select 1 from holdfast_queue q where q.name = m.queue and q.paused_at is not null)
     limit :cap)
