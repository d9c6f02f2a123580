-- Messages that came into each queue since a moment and are still there, that ended since then, and how many of those
-- were there before: arrived - left is how much a queue has grown.
select x.queue, sum(x.arrived), sum(x.ended), sum(x.older) from (
    select queue, 1 as arrived, 0 as ended, 0 as older from holdfast_message
     where queue is not null and coalesce(due_at, created_at) > :since and coalesce(due_at, created_at) <= :now
     union all
    select queue, 0, 1, due_at <= :since from holdfast_history where ended_at > :since and outcome <> 'discarded'
     union all
    select queue, 0, 1, coalesce(due_at, created_at) <= :since from holdfast_dead where died_at > :since) x
 group by x.queue order by x.queue
