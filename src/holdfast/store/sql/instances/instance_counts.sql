-- How many instances of each version are in which state, of those that have not ended.
select queue, state, count(*), min(started_at) from holdfast.instance where ended_at is null group by queue, state
 order by queue, state
