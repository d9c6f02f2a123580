-- A message into the stream of an instance, for those who start, signal and cancel by plain SQL. Its place is given at commit.
create or replace function holdfast.tell_instance(
    p_id text, p_queue text, p_message uuid, p_type text, p_body text, p_deadline timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(p_body) > 1048576 then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'holdfast: nothing was stored: a message must not have more than 1048576 bytes';
    end if;
    perform holdfast.append(array[p_message], array[p_type], array[p_body], array[p_id], null, null, null, null, null,
                            array[p_deadline], array[p_queue], null, null, false, null);
end
$$;
