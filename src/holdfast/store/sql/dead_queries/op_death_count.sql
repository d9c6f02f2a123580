-- How many deaths there were since a moment, by queue, also of letters that are gone.
select queue, count(*), max(died_at) from holdfast.death where died_at > :since::timestamptz group by queue order by queue
