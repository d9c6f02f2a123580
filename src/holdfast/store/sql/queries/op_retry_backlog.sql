-- How many failed messages wait for a retry in the future, when the next one is due and when the last.
select count(*), min(claimable_at), max(claimable_at) from holdfast.message
 where status & 32768 = 32768 and claimable_at > :now and claimable_at < 'infinity'
