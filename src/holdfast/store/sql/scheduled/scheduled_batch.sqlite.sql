-- The next scheduled messages of a queue.
select seq from holdfast_scheduled where queue = :queue order by claimable_at limit :limit
