-- The oldest suspect of these queues, or of those below these families, that are not leased.
select m.seq, m.id, m.queue, m.type, m.body, m.stream, m.position, m.subject, m.headers,
       cast(m.status as integer), m.attempts, cast(m.failures as integer), cast(m.vanished as integer),
       cast(m.refunds as integer), m.created_at, m.due_at, m.deadline, min(m.epoch, 2147483646) + 1, m.seq, length(cast(m.body as blob))
  from holdfast_message m left join holdfast_queue q on q.name = m.queue
 where m.head and m.vanished > 0 and (m.queue in (select value from json_each(:queues))
        or (exists (select 1 from json_each(:families) f where m.queue > f.value || '/' and m.queue < f.value || '0')
            and m.queue not in (select value from json_each(:without))))
   and m.claimable_at <= :now
   and q.paused_at is null and not exists (select 1 from holdfast_lease l where l.seq = m.seq)
 order by m.claimable_at, m.seq limit 1
