-- Deaths since a moment, by queue and reason, counted up to a limit, also of letters redriven or discarded since.
select x.queue, x.reason, count(*) from (
    select queue, coalesce(last_reason, reason) as reason from holdfast.death where died_at > :since::timestamptz limit :limit::int) x
 group by x.queue, x.reason order by 3 desc, 1, 2
