-- Unrouted messages with a subscriber now, oldest first.
select m.seq from holdfast_message m
 where m.queue is null and exists (
     select 1 from holdfast_subscription s where s.pattern = m.type or (s.pattern like '%*'
        and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))
 order by m.seq limit :count
