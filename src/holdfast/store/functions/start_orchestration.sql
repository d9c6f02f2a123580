-- Start an instance of an orchestration by plain SQL, in the caller's transaction; its id. What the library's own `start`
-- refuses is refused here too, and so is an orchestration that no application has declared.
create or replace function holdfast.start_orchestration(
    orchestration text, input json default null, id text default null, deadline timestamptz default null,
    attributes json default null)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_id text := coalesce(start_orchestration.id, gen_random_uuid()::text);
    v_start uuid := gen_random_uuid();
    v_body text;
    v_wrong text;
begin
    v_wrong := case
        when orchestration is null or position('@' in orchestration) = 0 then 'name the orchestration with its version, name@version'
        when not exists (select from holdfast.queue q where q.name = orchestration) then
            'no application has declared orchestration ' || orchestration || '. There is: '
            || coalesce((select string_agg(q.name, ', ' order by q.name) from holdfast.queue q where q.name ~ '@'), 'none yet')
        when not holdfast.is_name(v_id, 300) then
            'the id of an instance must have 1 to 300 characters, no control characters and no spaces around it'
        when deadline < '0001-01-01 00:00:00+00' or deadline >= '10000-01-01 00:00:00+00' then
            'the deadline of an instance must be in the years 1 to 9999'
        when json_typeof(attributes) <> 'object' then 'the attributes of an instance must be a JSON object'
        end;
    if v_wrong is null and json_typeof(attributes) = 'object' then
        v_wrong := case
            when (select count(*) from json_each(attributes)) > 20 then 'an instance can have 20 attributes at most'
            when exists (select from json_each(attributes) a where a.key !~ '^[A-Za-z_][A-Za-z0-9_.-]{0,59}$') then
                'the name of an attribute is 1 to 60 letters, digits, _, . and -, and begins with a letter or _'
            when exists (select from json_each(attributes) a where json_typeof(a.value) <> 'string'
                            or not holdfast.is_name(a.value #>> '{}', 200)) then
                'the value of an attribute must be a text of 1 to 200 characters, without control characters and spaces around it'
            end;
    end if;
    if v_wrong is null then
        v_body := json_strip_nulls(json_build_object(
            'input', input::text, 'deadline', (extract(epoch from deadline) * 1000000)::bigint,
            'attributes', case when exists (select from json_each(attributes)) then attributes end))::text;
        if octet_length(v_body) > 1048576 then
            v_wrong := 'the input of an instance must not have more than 1048576 bytes, as it is stored';
        end if;
    end if;
    if v_wrong is not null then
        raise exception using errcode = 'invalid_parameter_value', message = 'holdfast: nothing was started: ' || v_wrong;
    end if;
    if not holdfast.begin_instance(v_id, orchestration, v_start, v_body::json ->> 'attributes', clock_timestamp()) then
        raise exception using errcode = 'unique_violation',
            message = 'holdfast: nothing was started: an instance with the id ' || v_id || ' exists already';
    end if;
    perform holdfast.tell_instance(v_id, orchestration, v_start, 'holdfast.start', v_body, null);
    return v_id;
end
$$;
