-- When the message of the oldest removable dedupe key ended: before a moment, and without a delivery left.
select k.ended_at from holdfast.dedupe k
 where k.ended_at < :before::timestamptz and k.kept is null
   and not exists (select 1 from holdfast.message m where m.id = k.id)
   and not exists (select 1 from holdfast.scheduled s where s.id = k.id)
   and not exists (select 1 from holdfast.dead x where x.id = k.id)
 order by k.ended_at limit 1
