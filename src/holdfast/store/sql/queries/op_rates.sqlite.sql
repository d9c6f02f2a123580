-- What ended since a moment, by queue and outcome; deaths among it.
select x.queue, x.outcome, count(*) from (
    select queue, outcome from holdfast_history where ended_at > :since
     union all
    select queue, 'dead' from holdfast_dead where died_at > :since) x
 group by x.queue, x.outcome
