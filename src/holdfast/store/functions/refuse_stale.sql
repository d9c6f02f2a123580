-- A REPEATABLE READ transaction still sees the row of a stream that housekeeping has taken away meanwhile, beside the
-- new one of its own, and must not decide by either: it is told to begin anew, as for any row that changed meanwhile.
create or replace function holdfast.refuse_stale(p_queue text[], p_stream text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- Counted one by one: a join would trust the primary key and stop at the first row.
    if exists (select 1 from unnest(p_queue, p_stream) u (queue, name)
                where (select count(*) from holdfast.stream s where s.queue = u.queue and s.name = u.name) > 1) then
        raise exception using errcode = '40001', message = 'could not serialize access due to concurrent delete of a stream';
    end if;
end
$$;
