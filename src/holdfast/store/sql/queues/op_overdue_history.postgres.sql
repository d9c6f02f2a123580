-- When a row of the history ended that is from before a moment, if there is one.
select ended_at from holdfast.history where ended_at < :before::timestamptz limit 1
