-- Whether signals that came before the start of this instance are still to be passed on to it: those after them wait behind
-- them. A stream that a dead letter holds up has no head, and holds up nobody here.
create or replace function holdfast.is_expected(p_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
begin
    return exists (select from holdfast.message m
                    where m.queue = 'holdfast/signals' and m.stream = p_id and m.head and m.position is not null)
        or exists (select from holdfast.message m
                    where m.xact = pg_current_xact_id_if_assigned() and m.queue = 'holdfast/signals' and m.stream = p_id);
end
$$;
