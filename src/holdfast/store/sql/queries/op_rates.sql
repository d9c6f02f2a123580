-- What ended since a moment, by queue and outcome, including deaths.
select x.queue, x.outcome, count(*) from (
    select queue, outcome from holdfast.history where ended_at > :since::timestamptz
     union all
    select queue, 'dead' from holdfast.dead where died_at > :since::timestamptz) x
 group by x.queue, x.outcome
