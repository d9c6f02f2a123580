-- The number of a message that dies: its own. Only a file can have brought a dead letter with the same id, queue and number.
create or replace function holdfast.dead_number(p_id uuid, p_queue text, p_seq bigint) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return coalesce((select max(d.seq) + 1 from holdfast.dead d where d.id = p_id and d.queue = p_queue
                     having bool_or(d.seq = p_seq)), p_seq);
end
$$;
