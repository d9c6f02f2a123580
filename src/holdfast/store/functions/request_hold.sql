-- Lock requests, always in the order of their ids, and answer where they stand: no bodies. Whoever judges a result reads the
-- clock after this, in a statement of its own: a time that was read while waiting for the lock would be too early.
create or replace function holdfast.request_hold(p_id uuid[])
returns table (id uuid, kind text, variant text, type text, stream text, subject text, state text, reason text,
               created_at timestamptz, deadline timestamptz, soft_at timestamptz, told_at timestamptz,
               ended_at timestamptz, timed_out_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    -- step: request_hold
    return query
    select r.id, r.kind, r.variant, r.type, r.stream, r.subject, r.state, r.reason, r.created_at, r.deadline, r.soft_at,
           r.told_at, r.ended_at, r.timed_out_at
      from holdfast.request r where r.id = any (p_id) order by r.id for update;
end
$$;
