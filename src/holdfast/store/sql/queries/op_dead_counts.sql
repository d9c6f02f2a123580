-- Dead letters by queue, and the newest death.
select queue, count(*), max(died_at) from holdfast.dead group by queue
