-- When the oldest row of the history ended, if that was before a moment.
select ended_at from holdfast_history where ended_at < :before order by ended_at limit 1
