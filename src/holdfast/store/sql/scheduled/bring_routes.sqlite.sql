-- Which queues these go to: their own, their target, or the subscribers of this moment; none: it is unrouted. And whether
-- another message with the same id is pending there, here or among them.
select x.seq, x.queue,
       x.queue is not null and (x.nth > 1 or exists (
           select 1 from holdfast_message t where t.id = x.id and t.queue = x.queue))
  from (select y.*, row_number() over (partition by y.id, y.queue order by y.n) as nth
          from (select j.key as n, s.seq, s.id,
                       coalesce(s.target, case when s.queue <> 'holdfast/timer' then s.queue end, r.queue) as queue
                  from json_each(:seqs) j
                  join holdfast_scheduled s on s.seq = j.value
                  left join holdfast_subscription r on s.target is null and s.queue = 'holdfast/timer'
                   and (r.pattern = s.type or (r.pattern like '%*'
                        and substr(s.type, 1, length(r.pattern) - 1) = substr(r.pattern, 1, length(r.pattern) - 1)))
                 group by s.seq, r.queue) y) x
 order by x.n, x.queue
