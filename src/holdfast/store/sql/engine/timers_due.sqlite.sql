-- Timers that are due, oldest first, and the bytes of their bodies.
select seq, length(cast(body as blob)) from holdfast_message
 where queue = 'holdfast/timer' and head and vanished = 0 and claimable_at <= :now
 order by claimable_at, seq limit :count
