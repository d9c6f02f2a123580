-- Whether a suspect of these queues may be claimed now.
select exists (select 1 from holdfast.message m left join holdfast.queue q on q.name = m.queue
                where m.head and m.vanished > 0 and m.queue = any (:queues::text[])
                  and m.claimable_at <= :now and q.paused_at is null)
