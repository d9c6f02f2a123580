-- What has ended since a moment that is not long ago. The plan is pinned: planned without its parameters, the whole history
-- would be read.
create or replace function holdfast.ended_since(p_since timestamptz)
returns table (id uuid, queue text, due_at timestamptz, ended_at timestamptz, outcome text, why text)
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query select h.id, h.queue::text, h.due_at, h.ended_at, h.outcome::text, h.why::text
                   from holdfast.history h where h.ended_at >= p_since;
end
$$;
