-- The next dead letters by their key, so many and so many bytes at most, and what is wrong with each of them.
select x.seq, x.id, x.queue, x.flaw, x.headers, x.body
  from (select d.seq, d.id, d.queue, d.headers, d.body,
               sum(length(cast(d.body as blob))) over (order by d.id, d.queue, d.seq) - length(cast(d.body as blob)) as before,
               case when min(d.attempts, d.failures, d.vanished, d.refunds, d.redrives, d.epoch) < 0
                         or d.status not between 0 and 65535 then 'counted'
                    when typeof(d.created_at) <> 'integer' or typeof(d.died_at) <> 'integer'
                         or typeof(coalesce(d.due_at, 0)) <> 'integer' or typeof(coalesce(d.deadline, 0)) <> 'integer' then 'timed'
                    when d.dedupe is not null and not exists (
                         select 1 from holdfast_dedupe k where k.scope = case when unicode(d.dedupe) = 31 then '' else d.type end and k.key = d.dedupe and k.id = d.id)
                    then 'keyless' end as flaw
          from (select * from holdfast_dead where (id, queue, seq) > (:id, :queue, :seq) order by id, queue, seq limit :limit) d) x
 where x.before < :bytes order by x.id, x.queue, x.seq
