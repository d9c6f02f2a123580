-- Dedupe keys whose message ended before a moment and has no delivery left, pending or dead; beginning where the batch
-- before ended.
delete from holdfast_dedupe where (scope, key) in (
    select k.scope, k.key from holdfast_dedupe k
     where k.ended_at >= :since and k.ended_at < :before and k.kept is null
       and not exists (select 1 from holdfast_message m where m.id = k.id)
       and not exists (select 1 from holdfast_scheduled s where s.id = k.id)
       and not exists (select 1 from holdfast_dead x where x.id = k.id)
     order by k.ended_at limit :limit) returning ended_at
