-- How many deaths there were since a moment, whatever became of the letters, by queue.
select queue, count(*), max(died_at) from holdfast_death where died_at > :since group by queue order by queue
