-- Count results of requests that are locked, and end those that have a new state. A request that has ended is only counted.
create or replace function holdfast.request_settle(p_rows json)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- step: request_settle
    update holdfast.request r
       set results = r.results + x.results, late = r.late + x.late,
           state = coalesce(x.state, r.state), reason = coalesce(x.reason, r.reason),
           ended_at = coalesce(x.ended_at, r.ended_at), timed_out_at = coalesce(x.timed_out_at, r.timed_out_at),
           result = coalesce(x.result, r.result), received_at = coalesce(x.received_at, r.received_at),
           next_at = case when x.state is null then r.next_at end
      from json_to_recordset(p_rows) as x (id uuid, results int, late int, state text, reason text, ended_at timestamptz,
                                           timed_out_at timestamptz, result uuid, received_at timestamptz)
     where r.id = x.id;
end
$$;
