-- The queues that messages of these types go to.
select distinct t.value, s.queue from json_each(:types) t join holdfast_subscription s
    on s.pattern = t.value or (s.pattern like '%*'
        and substr(t.value, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
 order by 1, 2
