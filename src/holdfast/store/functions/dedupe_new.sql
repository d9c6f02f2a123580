-- Take the dedupe keys of new messages, sorted; answer those that were taken before, with the first one's id. A key is
-- taken once: the same message that comes again with its own id is a duplicate as well.
create or replace function holdfast.dedupe_new(p_id uuid[], p_type text[], p_dedupe text[])
returns table (n bigint, id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    v_taken uuid[];
begin
    with taken as (
        insert into holdfast.dedupe (scope, key, id)
        select distinct on (u.scope, u.key) u.scope, u.key, u.id
          from unnest(p_type, p_dedupe, p_id) with ordinality u (scope, key, id, n)
         where u.key is not null order by u.scope, u.key, u.n
            on conflict do nothing returning id)
    select array_agg(t.id) into v_taken from taken t;
    return query
    select u.n, d.id
      from (select u.*, row_number() over (partition by u.scope, u.key order by u.n) as nth
              from unnest(p_type, p_dedupe, p_id) with ordinality u (scope, key, id, n)) u
      join holdfast.dedupe d on d.scope = u.scope and d.key = u.key
     where u.nth > 1 or u.id <> d.id or d.id <> all (coalesce(v_taken, '{}'));
end
$$;
