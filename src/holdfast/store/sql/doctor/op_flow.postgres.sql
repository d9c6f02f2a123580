-- Messages that came into each queue since a moment and are still there, that ended since then, and how many of those
-- were there before: arrived - left is how much a queue has grown.
select x.queue, sum(x.arrived)::int, sum(x.ended)::int, sum(x.older)::int from (
    select queue, 1 as arrived, 0 as ended, 0 as older from holdfast.message
     where queue is not null and coalesce(due_at, created_at) > :since::timestamptz
       and coalesce(due_at, created_at) <= coalesce(:now::timestamptz, clock_timestamp())
     union all
    select queue, 0, 1, (due_at <= :since::timestamptz)::int from holdfast.history
     where ended_at > :since::timestamptz and outcome <> 'discarded'
     union all
    select queue, 0, 1, (coalesce(due_at, created_at) <= :since::timestamptz)::int from holdfast.dead
     where died_at > :since::timestamptz) x
 group by x.queue order by x.queue
