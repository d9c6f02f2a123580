-- Give a request that is locked and open another deadline.
create or replace function holdfast.request_extend(
    p_id uuid, p_deadline timestamptz, p_soft_at timestamptz, p_next_at timestamptz)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- step: request_extend
    update holdfast.request r set deadline = p_deadline, soft_at = p_soft_at, next_at = p_next_at
     where r.id = p_id and r.state = 'open';
end
$$;
