-- The next messages by their number, so many and so many bytes at most, and what is wrong with each of them.
select x.seq, x.id, x.queue, x.flaw, x.headers, x.body
  from (select m.seq, m.id, m.queue, m.headers, m.body,
               sum(octet_length(m.body)::bigint) over (order by m.seq) - octet_length(m.body)::numeric as before,
               case when m.head and m.xact is not null then 'marked'
                    when m.position is not null and (m.stream is null or m.queue is null) then 'misplaced'
                    when m.position is null and m.queue is not null and not m.head then 'unplaced'
                    when m.position is not null and not exists (
                         select 1 from holdfast.stream s where s.queue = m.queue and s.name = m.stream) then 'streamless'
                    when least(m.attempts, m.failures, m.vanished, m.refunds, m.redrives, m.epoch) < 0
                         or m.status not between 0 and 65535 then 'counted'
                    when not isfinite(m.created_at) or not isfinite(m.due_at) or not isfinite(m.deadline) then 'timed'
                    when m.dedupe is not null and not exists (
                         select 1 from holdfast.dedupe d where d.scope = holdfast.dedupe_scope(m.type, m.dedupe) and d.key = m.dedupe and d.id = m.id)
                    then 'keyless' end as flaw
          from (select * from holdfast.pending where seq > :after::bigint order by seq limit :limit::int) m) x
 where x.before < :bytes::numeric order by x.seq
