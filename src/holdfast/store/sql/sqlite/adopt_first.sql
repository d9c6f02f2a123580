-- An unrouted message goes to its first queue.
update holdfast_message set queue = :queue, xact = case when stream is not null then 2 end, claimable_at = max(claimable_at, :now)
 where seq = :seq
