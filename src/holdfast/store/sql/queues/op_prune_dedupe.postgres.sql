-- Dedupe keys whose message ended before a moment and has no delivery left, pending or dead; beginning where the batch
-- before ended. A producer that uses a key at this moment waits for us and then takes it again; we do not wait.
delete from holdfast.dedupe d where d.ctid = any (array(
    select k.ctid from holdfast.dedupe k
     where k.ended_at >= :since::timestamptz and k.ended_at < :before::timestamptz and k.kept is null
       and not exists (select 1 from holdfast.message m where m.id = k.id)
       and not exists (select 1 from holdfast.scheduled s where s.id = k.id)
       and not exists (select 1 from holdfast.dead x where x.id = k.id)
     order by k.ended_at limit :limit::int for update skip locked)) returning d.ended_at
