-- Store messages of one type that have neither stream nor dedupe key nor queue nor time: what `append` does, for two thirds
-- of the cost, since nothing is joined.
create or replace function holdfast.append_plain(
    p_id uuid[], p_type text, p_body text[], p_subject text[], p_headers text[], p_now timestamptz)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_queues text[] := array(select r.queue from holdfast.route(p_type) r (queue));
    v_queue text;
begin
    if cardinality(v_queues) = 0 then
        v_queues := array[null];  -- kept until somebody subscribes
    end if;
    foreach v_queue in array v_queues loop
        -- step: append_plain
        insert into holdfast.message (id, type, body, subject, headers, claimable_at, created_at, queue, plain)
        select u.id, p_type, u.body, u.subject, u.headers, v_now, v_now, v_queue, null
          from unnest(p_id, p_body, p_subject, p_headers) u (id, body, subject, headers);
    end loop;
    perform holdfast.nudge(v_queues);
end
$$;
