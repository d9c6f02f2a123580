-- One event at the end of its stream, if that is at the version expected. Answers the new version, or the one found
-- and false. The row of the stream is held from here to the commit, like any row that the caller writes.
create or replace function holdfast.append_event(
    p_stream text, p_id uuid, p_type text, p_subject text, p_headers text, p_body text, p_expect bigint,
    p_must boolean, p_now timestamptz, out version bigint, out stored boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    insert into holdfast.event_stream as s (name, version) values (p_stream, 0) on conflict (name) do nothing;
    -- step: event_version
    update holdfast.event_stream s set version = s.version + 1
     where s.name = p_stream and (p_expect is null or s.version = p_expect) returning s.version into version;
    stored := found;
    if stored then
        insert into holdfast.event (stream, version, id, type, subject, created_at, headers, body)
        values (p_stream, version, p_id, p_type, p_subject, coalesce(p_now, clock_timestamp()), p_headers, p_body);
        return;
    end if;
    select s.version into version from holdfast.event_stream s where s.name = p_stream;
    if p_must then
        raise exception using errcode = 'HF001',
            message = format('holdfast: event stream %s was expected at version %s and is at %s', p_stream, p_expect, version);
    end if;
end
$$;
