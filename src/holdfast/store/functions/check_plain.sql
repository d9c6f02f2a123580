-- What a plain INSERT may not say: what the engine's own publish refuses too, and the engine's own columns. A row that
-- no worker could read would stop everybody who shares its queue.
create or replace function holdfast.check_plain(m holdfast.message) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ours text := concat_ws(', ',
        case when m.status <> 1 then 'status' end, case when m.epoch <> 0 then 'epoch' end,
        case when m.attempts <> 0 then 'attempts' end, case when m.failures <> 0 then 'failures' end,
        case when m.vanished <> 0 then 'vanished' end, case when m.refunds <> 0 then 'refunds' end,
        case when m.redrives <> 0 then 'redrives' end, case when m.reason is not null then 'reason' end,
        case when m.errors is not null then 'errors' end, case when m.traceback is not null then 'traceback' end, case when m.dedupe is not null then 'dedupe' end,
        case when m.target is not null then 'target' end);
    v_wrong text;
begin
    if v_ours <> '' then
        v_wrong := 'the engine''s own columns of a message cannot be set: leave out ' || v_ours;
    elsif not holdfast.is_name(m.type, 200) or position('*' in m.type) > 0 then
        v_wrong := 'the type of a message must have 1 to 200 characters, no control characters, no * and no spaces around it';
    elsif not holdfast.is_name(m.stream, 300) then
        v_wrong := 'the stream of a message must have 1 to 300 characters, no control characters and no spaces around it';
    elsif not holdfast.is_name(m.subject, 300) then
        v_wrong := 'the subject of a message must have 1 to 300 characters, no control characters and no spaces around it';
    elsif not holdfast.is_name(m.queue, 200) or starts_with(m.queue, 'holdfast/') then
        v_wrong := 'the queue of a message must be that of a handler: leave it out, and every subscriber gets the message';
    elsif octet_length(m.body) > 1048576 then
        v_wrong := 'the body of a message must not have more than 1048576 bytes';
    elsif octet_length(m.headers) > 16384 then
        v_wrong := 'the headers of a message must not have more than 16384 bytes';
    end if;
    if v_wrong is not null then
        raise exception using errcode = 'invalid_parameter_value', message = 'holdfast: ' || v_wrong;
    end if;
    perform m.body::json;
    if json_typeof(m.headers::json) <> 'object' then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'holdfast: the headers of a message must be a JSON object';
    end if;
    if exists (select 1 from json_each(m.headers::json) h where json_typeof(h.value) not in ('string', 'number', 'boolean')) then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'holdfast: the values of headers must be texts, numbers or booleans';
    end if;
end
$$;
