-- Messages that ended since a moment and had begun late although nothing had failed, counted up to a limit; how late.
select count(*), max(x.late) / 1000000.0 from (
    select started_at - due_at as late from holdfast_history
     where ended_at > :since and failures = 0 and started_at - due_at >= :late * 1000000 limit :limit) x
