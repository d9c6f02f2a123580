-- Whether a queue keeps the order of streams; a handler may declare that its own does not.
create or replace function holdfast.keeps_order(p_queue text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return coalesce((select q.ordered from holdfast.queue q where q.name = p_queue), true);
end
$$;
