-- Lines of history from before a moment, a batch of them.
delete from holdfast.history where ctid = any (array(
    select ctid from holdfast.history where ended_at < :before::timestamptz limit :limit::int)) returning 1
