-- Take the dedupe keys of new messages, sorted; answer those that were taken before, with the first one's id. A key is
-- taken once: the same message that comes again with its own id is a duplicate as well. A key that was given up between
-- our two looks, because its time was over, is taken at the next try.
create or replace function holdfast.dedupe_new(p_id uuid[], p_type text[], p_dedupe text[], p_kept int[])
returns table (n bigint, id uuid)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_taken uuid[] := '{}'; v_new uuid[]; v_number bigint[]; v_first uuid[]; v_missing boolean;
begin
    for attempt in 1 .. 10 loop
        with taken as (
            insert into holdfast.dedupe (scope, key, id, kept)
            select distinct on (s.scope, u.key) s.scope, u.key, u.id, u.kept
              from unnest(p_type, p_dedupe, p_id, p_kept) with ordinality u (type, key, id, kept, n)
             cross join lateral (select holdfast.dedupe_scope(u.type, u.key) as scope) s
             where u.key is not null order by s.scope, u.key, u.n
                on conflict do nothing returning id)
        select array_agg(t.id) into v_new from taken t;
        v_taken := v_taken || v_new;
        -- step: dedupe_taken
        select array_agg(x.n) filter (where x.duplicate), array_agg(x.first) filter (where x.duplicate),
               bool_or(x.first is null)
          into v_number, v_first, v_missing
          from (select u.n, d.id as first, u.nth > 1 or u.id <> d.id or d.id <> all (v_taken) as duplicate
                  from (select u.*, s.scope, row_number() over (partition by s.scope, u.key order by u.n) as nth
                          from unnest(p_type, p_dedupe, p_id) with ordinality u (type, key, id, n)
                         cross join lateral (select holdfast.dedupe_scope(u.type, u.key) as scope) s
                         where u.key is not null) u
                  left join holdfast.dedupe d on d.scope = u.scope and d.key = u.key) x;
        exit when not v_missing;
    end loop;
    return query select * from unnest(v_number, v_first);
end
$$;
