-- How many of the failed messages that are pending have had how many attempts.
select attempts, count(*) from holdfast.message where status & 32768 = 32768 group by attempts order by attempts
