-- The next messages by their number, so many and so many bytes at most, and what is wrong with each of them.
select x.seq, x.id, x.queue, x.flaw, x.headers, x.body
  from (select m.seq, m.id, m.queue, m.headers, m.body,
               sum(length(cast(m.body as blob))) over (order by m.seq) - length(cast(m.body as blob)) as before,
               case when m.head and m.xact is not null then 'marked'
                    when m.position is not null and (m.stream is null or m.queue is null) then 'misplaced'
                    when m.position is null and m.queue is not null and not m.head then 'unplaced'
                    when m.position is not null and not exists (
                         select 1 from holdfast_stream s where s.queue = m.queue and s.name = m.stream) then 'streamless'
                    when min(m.attempts, m.failures, m.vanished, m.refunds, m.redrives, m.epoch) < 0
                         or m.status not between 0 and 65535 then 'counted'
                    when typeof(m.claimable_at) <> 'integer' or typeof(m.created_at) <> 'integer'
                         or typeof(coalesce(m.due_at, 0)) <> 'integer' or typeof(coalesce(m.deadline, 0)) <> 'integer' then 'timed'
                    when m.dedupe is not null and not exists (
                         select 1 from holdfast_dedupe d where d.scope = case when unicode(m.dedupe) = 31 then '' else m.type end and d.key = m.dedupe and d.id = m.id)
                    then 'keyless' end as flaw
          from (select * from holdfast_pending where seq > :after order by seq limit :limit) m) x
 where x.before < :bytes order by x.seq
