-- How many deaths there were since a moment, whatever became of the letters, by queue.
select queue, count(*), max(died_at) from holdfast.death where died_at > :since::timestamptz group by queue order by queue
