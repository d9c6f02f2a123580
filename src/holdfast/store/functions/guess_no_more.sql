-- More than one message of this transaction waits for its place: they are placed together, streams sorted, and the
-- position that the first was told to have counts for nothing. `p_untold`: also if all settings were reset since.
create or replace function holdfast.guess_no_more(p_untold boolean default false) returns void
language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
    if p_untold or current_setting('holdfast.unplaced', true) <> '' then
        update holdfast.message m set position = null
         where m.xact = pg_current_xact_id()
           and m.position::text = coalesce(nullif(current_setting('holdfast.unplaced', true), ''), m.position::text);
    end if;
    perform set_config('holdfast.unplaced', 'many', true);
end
$$;
