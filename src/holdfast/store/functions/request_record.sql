-- Store results, as they were judged. Answers those that are new: one that the same message brought before is not stored.
create or replace function holdfast.request_record(p_rows json)
returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- step: request_record
    return query
    insert into holdfast.request_result (id, request, received_at, standing, failed, body, source)
    select x.id, x.request, x.received_at, x.standing, x.failed, x.body, x.source
      from json_to_recordset(p_rows) as x (id uuid, request uuid, received_at timestamptz, standing text, failed text,
                                           body text, source uuid)
        on conflict (request, source) where source is not null do nothing
    returning request_result.id;
end
$$;
