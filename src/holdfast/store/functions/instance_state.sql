-- Where the messages of an instance go, for whoever signals or cancels it. Nothing is locked.
create or replace function holdfast.instance_state(p_id text) returns table (queue text, state text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select i.queue, i.state from holdfast.instance i where i.id = p_id
$$;
