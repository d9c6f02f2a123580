-- When the next head of these queues falls due, and whether a suspect waits now.
select (select min((select m.claimable_at from holdfast_message m
                     where m.queue = j.value and m.head and m.vanished = 0 and m.claimable_at > :now
                     order by m.claimable_at limit 1)) from json_each(:queues) j),
       exists (select 1 from holdfast_message m
                where m.head and m.vanished > 0 and m.queue in (select value from json_each(:queues))
                  and m.claimable_at <= :now)
