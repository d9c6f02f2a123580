-- How far the handlers under these leases have come. A lease that is lost has no row; one that is locked is passed over:
-- the heartbeat never waits.
update holdfast.lease l set progress = u.progress
  from unnest(:seq::bigint[], :epoch::int[], :progress::text[]) u (seq, epoch, progress)
 where l.seq = u.seq and l.epoch = u.epoch
   and l.seq in (select x.seq from holdfast.lease x where x.seq = any (:seq::bigint[]) for no key update skip locked)
