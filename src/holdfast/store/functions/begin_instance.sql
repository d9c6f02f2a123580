-- The row of a new instance, in the transaction of its start; its first message is stored beside it. False: the id is taken.
create or replace function holdfast.begin_instance(
    p_id text, p_queue text, p_start uuid, p_attributes text, p_now timestamptz) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    if exists (select from holdfast.message m
                where m.queue = 'holdfast/signals' and m.stream = p_id and m.head and m.position is not null) then
        perform holdfast.pass_on_signals(array[p_id], p_now);
    end if;
    insert into holdfast.instance (id, queue, start, mark, attributes, started_at)
    values (p_id, p_queue, p_start, p_start, p_attributes, p_now) on conflict (id) do nothing;
    return found;
end
$$;
