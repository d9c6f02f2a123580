-- One more message of this transaction waits for its place. They are placed together, streams sorted, so a position
-- that the first of them has guessed counts for nothing. `holdfast.unplaced` is that position while one message waits,
-- then `many`, and `placed` when none waits any more; empty if nothing is known.
create or replace function holdfast.guess_no_more() returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
begin
    if current_setting('holdfast.unplaced', true) not in ('', 'many', 'placed') then
        update holdfast.message m set position = null
         where m.xact = pg_current_xact_id() and m.position = current_setting('holdfast.unplaced')::bigint;
    end if;
    perform set_config('holdfast.unplaced', 'many', true);
end
$$;
