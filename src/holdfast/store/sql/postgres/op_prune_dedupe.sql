-- Dedupe keys whose message ended before a moment and has no delivery left, pending or dead. A producer that uses the
-- key at this instant waits for us and then takes it anew.
delete from holdfast.dedupe d where (d.scope, d.key) in (
    select k.scope, k.key from holdfast.dedupe k
     where k.ended_at < :before::timestamptz
       and not exists (select 1 from holdfast.message m where m.id = k.id)
       and not exists (select 1 from holdfast.dead x where x.id = k.id)
     order by k.scope, k.key limit :limit::int for update skip locked) returning 1
