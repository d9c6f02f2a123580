-- Results that were there before these requests, the first to come first: no bodies.
create or replace function holdfast.request_early(p_id uuid[])
returns table (id uuid, request uuid, received_at timestamptz, failed text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    select x.id, x.request, x.received_at, x.failed
      from holdfast.request_result x
     where x.standing = 'early' and x.request = any (p_id) order by x.received_at, x.id;
end
$$;
