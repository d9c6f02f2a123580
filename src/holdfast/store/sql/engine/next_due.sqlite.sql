-- When the next head of these queues falls due, and whether a suspect waits now. Nobody is woken for a paused queue.
with wanted (queue) as (
    select j.value from json_each(:queues) j left join holdfast_queue q on q.name = j.value where q.paused_at is null)
select (select min(min(coalesce((select m.claimable_at from holdfast_message m
                                  where m.queue = w.queue and m.head and m.vanished = 0 and m.claimable_at > :now
                                  order by m.claimable_at limit 1), :never),
                       coalesce((select m.claimable_at from holdfast_message m
                                  where m.queue = w.queue and m.head and m.vanished > 0 and m.claimable_at > :now
                                  order by m.claimable_at limit 1), :never))) from wanted w),
       exists (select 1 from holdfast_message m
                where m.head and m.vanished > 0 and m.queue in (select queue from wanted) and m.claimable_at <= :now)
       or exists (select 1 from json_each(:families) f
                    join holdfast_message m on m.queue > f.value || '/' and m.queue < f.value || '0'
                    left join holdfast_queue q on q.name = m.queue
                   where m.head and m.vanished > 0 and m.claimable_at <= :now and q.paused_at is null)
