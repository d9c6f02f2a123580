-- Whether a suspect of these queues, or of those below these families, may be claimed now.
select exists (select 1 from holdfast.message m left join holdfast.queue q on q.name = m.queue
                where m.head and m.vanished > 0 and m.queue = any (:queues::text[])
                  and m.claimable_at <= (select coalesce(:now::timestamptz, clock_timestamp())) and q.paused_at is null)
    or exists (select 1 from pg_catalog.unnest(:families::text[]) f (name)
                 join holdfast.message m on m.queue > f.name || '/' and m.queue < f.name || '0'
                 left join holdfast.queue q on q.name = m.queue
                where m.head and m.vanished > 0
                  and m.claimable_at <= (select coalesce(:now::timestamptz, clock_timestamp())) and q.paused_at is null)
