-- Signals that came before these instances began are passed on now. Those that somebody has at this moment are passed on at
-- their next look: nobody is waited for.
create or replace function holdfast.pass_on_signals(p_ids text[], p_now timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
begin
    update holdfast.message m set claimable_at = p_now, epoch = least(m.epoch, 2147483646) + 1
      from (select w.seq from holdfast.message w
             where w.queue = 'holdfast/signals' and w.stream = any (p_ids) and w.head and w.position is not null
               and w.claimable_at > p_now and w.claimable_at < 'infinity'
               and not exists (select from holdfast.lease l where l.seq = w.seq)
               for update skip locked) w
     where m.seq = w.seq;
    if found then
        perform holdfast.nudge(array['holdfast/signals']);
    end if;
end
$$;
