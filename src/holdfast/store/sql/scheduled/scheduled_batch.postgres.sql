-- The next scheduled messages of a queue, locked.
select seq from holdfast.scheduled where queue = :queue order by claimable_at limit :limit::int for update
