-- What is written down of a message that becomes a dead letter because its id is taken (reason 12).
create or replace function holdfast.taken(p_id uuid, p_queue text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return 'IdTaken: when it came into queue ' || p_queue || ', another message with its id was pending there, number '
        || coalesce((select m.seq::text from holdfast.message m where m.id = p_id and m.queue = p_queue), 'unknown') || '.';
end
$$;
