-- Messages that ended since a moment and had begun late although nothing had failed, counted up to a limit; how late.
select count(*), extract(epoch from max(x.late))::float8 from (
    select started_at - due_at as late from holdfast.history
     where ended_at > :since::timestamptz and failures = 0
       and started_at - due_at >= make_interval(secs => :late::float8) limit :limit::int) x
