-- Dedupe keys with a window of their own whose message ended so long ago and has no delivery left, pending or dead. Each
-- length of window is a range of the index.
delete from holdfast_dedupe where (scope, key) in (
    with recursive lengths (kept) as (
        select min(k.kept) from holdfast_dedupe k where k.kept is not null and k.ended_at is not null
         union all
        select (select min(k.kept) from holdfast_dedupe k where k.kept > l.kept and k.ended_at is not null)
          from lengths l where l.kept is not null)
    select k.scope, k.key from lengths l join holdfast_dedupe k
        on k.kept = l.kept and k.ended_at is not null and k.ended_at < :now - l.kept * 1000000
     where not exists (select 1 from holdfast_message m where m.id = k.id)
       and not exists (select 1 from holdfast_scheduled s where s.id = k.id)
       and not exists (select 1 from holdfast_dead x where x.id = k.id)
     limit :limit) returning ended_at
