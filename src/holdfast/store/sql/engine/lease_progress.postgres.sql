-- Store the reported progress of the handlers under these leases. A lost lease has no row; a locked one is skipped:
-- the heartbeat never waits.
update holdfast.lease l set progress = u.progress
  from unnest(:seq::bigint[], :epoch::int[], :progress::text[]) u (seq, epoch, progress)
 where l.seq = u.seq and l.epoch = u.epoch
   and l.seq in (select x.seq from holdfast.lease x where x.seq = any (:seq::bigint[]) for no key update skip locked)
