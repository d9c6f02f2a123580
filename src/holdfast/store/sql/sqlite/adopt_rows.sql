-- Unrouted messages that somebody subscribes to now, oldest first.
select m.seq, s.queue from holdfast_message m join holdfast_subscription s
    on s.pattern = m.type or (s.pattern like '%*'
       and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
 where m.queue is null group by m.seq, s.queue order by m.seq limit :count
