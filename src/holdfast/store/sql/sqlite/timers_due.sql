-- Timers that are due, oldest first.
select seq, id, type, body, stream, subject, headers, due_at, deadline, target, status, dedupe from holdfast_message
 where queue = 'holdfast/timer' and head and vanished = 0 and claimable_at <= :now
 order by claimable_at, seq limit :count
