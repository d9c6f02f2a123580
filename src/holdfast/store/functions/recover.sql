-- End leases that their holder will not end: those that lapsed (no worker given), or those of one worker, except the
-- ones it still knows. What was running is counted as vanished, what had ended unreported as an attempt, the rest is
-- handed back as it was. After a lapse nobody can know which of a run had started, so all of it counts.
create or replace function holdfast.recover(
    p_worker bigint, p_running bigint[], p_ended bigint[], p_known bigint[], p_limit int, p_now timestamptz)
returns int
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    l record; m record; v_count int := 0;
begin
    for l in
        select x.seq, x.epoch, x.run_end, coalesce((select w.stopping from holdfast.worker w where w.id = x.worker), false) as stopping
          from holdfast.lease x
         where case when p_worker is null then x.until < v_now
                    else x.worker = p_worker and x.seq <> all (coalesce(p_known, '{}')) end
         order by x.seq limit p_limit
    loop
        select t.seq, t.queue, t.stream, t.position into m from holdfast.message t where t.seq = l.seq for update skip locked;
        if not found then
            delete from holdfast.lease x where x.seq = l.seq and x.epoch = l.epoch
               and not exists (select 1 from holdfast.message t where t.seq = l.seq);
            continue;
        end if;
        -- step: recover_lease
        delete from holdfast.lease x where x.seq = l.seq and x.epoch = l.epoch
           and (p_worker is not null or x.until < v_now);
        continue when not found;
        v_count := v_count + 1;
        -- step: recover_messages
        update holdfast.message t
           set attempts = least(t.attempts, 2147483646) + case when p_worker is null or t.seq = any (p_running || p_ended) then 1 else 0 end,
               vanished = least(t.vanished, 2147483646) + case when not l.stopping and (p_worker is null or t.seq = any (p_running)) then 1 else 0 end,
               epoch = least(t.epoch, 2147483646) + 1,
               claimable_at = case when t.head then greatest(t.claimable_at, v_now) else t.claimable_at end
         where t.seq = any (array(
                select l.seq
                 union all
                select f.seq from holdfast.message f
                 where f.queue = m.queue and f.stream = m.stream and f.position > m.position and f.position <= l.run_end));
    end loop;
    return v_count;
end
$$;
