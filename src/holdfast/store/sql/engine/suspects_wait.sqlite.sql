-- Whether a suspect of these queues, or of those below these families, may be claimed now.
select exists (select 1 from holdfast_message m left join holdfast_queue q on q.name = m.queue
                where m.head and m.vanished > 0 and m.queue in (select value from json_each(:queues))
                  and m.claimable_at <= :now and q.paused_at is null)
    or exists (select 1 from json_each(:families) f
                 join holdfast_message m on m.queue > f.value || '/' and m.queue < f.value || '0'
                 left join holdfast_queue q on q.name = m.queue
                where m.head and m.vanished > 0 and m.claimable_at <= :now and q.paused_at is null)
