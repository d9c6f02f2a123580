-- Dedupe keys with a window of their own whose message ended so long ago and has no delivery left, pending or dead. Each
-- length of window is a range of the index.
with recursive lengths as (
    (select k.kept from holdfast.dedupe k where k.kept is not null and k.ended_at is not null order by k.kept limit 1)
     union all
    select (select k.kept from holdfast.dedupe k where k.kept > l.kept and k.ended_at is not null order by k.kept limit 1)
      from lengths l where l.kept is not null)
delete from holdfast.dedupe d where d.ctid = any (array(
    select x.ctid from lengths l cross join lateral (
        select k.ctid from holdfast.dedupe k
         where k.kept = l.kept and k.ended_at is not null
           and k.ended_at < (select coalesce(:now::timestamptz, clock_timestamp())) - l.kept::float8 * interval '1 second'
           and not exists (select 1 from holdfast.message m where m.id = k.id)
       and not exists (select 1 from holdfast.scheduled s where s.id = k.id)
           and not exists (select 1 from holdfast.dead x where x.id = k.id)
         order by k.ended_at limit :limit::int for update skip locked) x
     limit :limit::int)) returning d.ended_at
