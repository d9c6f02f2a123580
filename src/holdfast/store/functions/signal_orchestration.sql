-- Send a signal to an instance by plain SQL, in the caller's transaction; the state of the instance. `not started`: the
-- signal waits for the start, for 7 days.
create or replace function holdfast.signal_orchestration(id text, name text, body json default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_queue text; v_state text; v_wrong text; v_waits boolean;
begin
    v_wrong := case
        when signal_orchestration.id is null or not holdfast.is_name(signal_orchestration.id, 300) then
            'the id of an instance must have 1 to 300 characters, no control characters and no spaces around it'
        when name is null or not holdfast.is_name(name, 200) then
            'the name of a signal must have 1 to 200 characters, no control characters and no spaces around it'
        end;
    select i.queue, i.state into v_queue, v_state from holdfast.instance_state(signal_orchestration.id) i;
    if v_state not in ('running', 'paused', 'suspended') then
        v_wrong := 'instance ' || signal_orchestration.id || ' is ' || v_state || ', so the signal would reach nobody';
    end if;
    if v_wrong is not null then
        raise exception using errcode = 'invalid_parameter_value', message = 'holdfast: nothing was stored: ' || v_wrong;
    end if;
    v_waits := v_queue is null or holdfast.is_expected(signal_orchestration.id);  -- then behind those from before the start
    perform holdfast.tell_instance(
        signal_orchestration.id, case when v_waits then 'holdfast/signals' else v_queue end, gen_random_uuid(), 'holdfast.signal',
        json_strip_nulls(json_build_object('name', name, 'body', body::text))::text,
        case when v_waits then clock_timestamp() + interval '7 days' end);
    return coalesce(v_state, 'not started');
end
$$;
