-- The heartbeat of a worker: its leases last longer. Answers those that are lost, and those asked to be cancelled.
-- What somebody changes at this moment is passed over, a lease that is being settled or the worker's own row in an
-- exchange that waits itself: the heartbeat never waits.
create or replace function holdfast.renew(p_worker bigint, p_seq bigint[], p_epoch int[], p_lease float8, p_now timestamptz)
returns table (seq bigint, lost boolean)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    update holdfast.worker w set seen_at = v_now
     where w.id = (select x.id from holdfast.worker x where x.id = p_worker for no key update skip locked);
    update holdfast.lease l set until = greatest(l.until, v_now + p_lease * interval '1 second')
     where l.seq = any (array(
        select x.seq from unnest(p_seq, p_epoch) u (seq, epoch)
          join holdfast.lease x on x.seq between u.seq and u.seq and x.epoch = u.epoch for no key update of x skip locked));
    -- step: renew_lost
    return query
    select u.seq, x.seq is null from unnest(p_seq, p_epoch) u (seq, epoch)
      left join holdfast.lease x on x.seq = u.seq and x.epoch = u.epoch where x.seq is null or x.cancel;
end
$$;
