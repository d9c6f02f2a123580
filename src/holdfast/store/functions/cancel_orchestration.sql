-- Ask an instance to end, by plain SQL, in the caller's transaction; its state. Its code sees a CancelledError.
create or replace function holdfast.cancel_orchestration(id text, why text default '') returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_queue text; v_state text;
begin
    select i.queue, i.state into v_queue, v_state from holdfast.instance_state(cancel_orchestration.id) i;
    if v_state is null or v_state not in ('running', 'paused', 'suspended') then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'holdfast: nothing was stored: '
                || coalesce('instance ' || cancel_orchestration.id || ' is ' || v_state || ' already',
                            'there is no instance ' || coalesce(cancel_orchestration.id, 'without an id') || ' to cancel');
    end if;
    perform holdfast.tell_instance(cancel_orchestration.id, v_queue, gen_random_uuid(), 'holdfast.cancel',
                                   json_build_object('why', coalesce(why, ''))::text, null);
    if v_state = 'paused' then  -- it tries once more; a worker does that, so that no row is locked here
        perform holdfast.tell_instance(null, 'holdfast/signals', gen_random_uuid(), 'holdfast.resume',
                                       json_build_array(cancel_orchestration.id)::text, null);
    end if;
    return v_state;
end
$$;
