-- The queues that a type goes to, and whether each keeps the order of streams.
select s.queue, coalesce(q.ordered, 1) from holdfast_subscription s
  left join holdfast_queue q on q.name = s.queue
 where s.pattern = :type or (s.pattern like '%*'
       and substr(:type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
 group by s.queue order by s.queue
