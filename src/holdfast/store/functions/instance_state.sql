-- Where the messages of an instance go, for whoever signals or cancels it. Nothing is locked.
create or replace function holdfast.instance_state(p_id text) returns table (queue text, state text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select i.queue::text, i.state::text from holdfast.instance i where i.id = p_id;
end
$$;
