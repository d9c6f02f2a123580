-- Take the dedupe keys of new messages, sorted; answer those that were taken before, with the first one's id.
create or replace function holdfast.dedupe_new(p_id uuid[], p_type text[], p_dedupe text[])
returns table (n bigint, id uuid)
language plpgsql as $$
begin
    insert into holdfast.dedupe (scope, key, id)
    select distinct on (u.scope, u.key) u.scope, u.key, u.id
      from unnest(p_type, p_dedupe, p_id) with ordinality u (scope, key, id, n)
     where u.key is not null order by u.scope, u.key, u.n
        on conflict do nothing;
    return query
    select u.n, d.id
      from unnest(p_type, p_dedupe, p_id) with ordinality u (scope, key, id, n)
      join holdfast.dedupe d on d.scope = u.scope and d.key = u.key
     where d.id <> u.id;
end
$$;
