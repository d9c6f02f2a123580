-- The next dead letters by their key, so many and so many bytes at most, and what is wrong with each of them.
select x.seq, x.id, x.queue, x.flaw, x.headers, x.body
  from (select d.seq, d.id, d.queue, d.headers, d.body,
               sum(octet_length(d.body)::bigint) over (order by d.id, d.queue, d.seq) - octet_length(d.body)::numeric as before,
               case when least(d.attempts, d.failures, d.vanished, d.refunds, d.redrives, d.epoch) < 0
                         or d.status not between 0 and 65535 then 'counted'
                    when not isfinite(d.created_at) or not isfinite(d.died_at) or not isfinite(d.due_at)
                         or not isfinite(d.deadline) then 'timed'
                    when d.dedupe is not null and not exists (
                         select 1 from holdfast.dedupe k where k.scope = holdfast.dedupe_scope(d.type, d.dedupe) and k.key = d.dedupe and k.id = d.id)
                    then 'keyless' end as flaw
          from (select * from holdfast.dead where (id, queue, seq) > (:id::uuid, :queue::text, :seq::bigint)
                 order by id, queue, seq limit :limit::int) d) x
 where x.before < :bytes::numeric order by x.id, x.queue, x.seq
