-- The dedupe keys of a settlement, all of them sorted in one statement, because those of a message are shared by its
-- deliveries in other queues: keys whose message has ended are held for a while from now on, and keys of what is emitted
-- are taken. Answers the numbers of what is emitted under a key that was taken before.
create or replace function holdfast.dedupe_settle(
    p_ended_type text[], p_ended_key text[], p_id uuid[], p_type text[], p_dedupe text[],
    p_kept int[], p_now timestamptz)
returns table (n bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_taken uuid[];
begin
    with taken as (
        insert into holdfast.dedupe as d (scope, key, id, kept, ended_at)
        select k.scope, k.key, (array_agg(k.id order by k.n))[1], (array_agg(k.kept order by k.n))[1],
               case when bool_or(k.ended) then p_now end
          from (select holdfast.dedupe_scope(u.type, u.key) as scope, u.key, u.id, u.kept, u.n, false as ended
                  from unnest(p_type, p_dedupe, p_id, p_kept) with ordinality u (type, key, id, kept, n) where u.key is not null
                 union all
                select d.scope, d.key, d.id, d.kept, 0, true
                  from unnest(p_ended_type, p_ended_key) e (type, key)
                 cross join lateral (
                       select d.* from holdfast.dedupe d where d.scope = holdfast.dedupe_scope(e.type, e.key) and d.key = e.key offset 0) d) k
         group by k.scope, k.key order by k.scope, k.key
            on conflict (scope, key) do update set ended_at = excluded.ended_at where excluded.ended_at is not null
        returning id, ended_at)
    select array_agg(t.id) filter (where t.ended_at is null) into v_taken from taken t;
    return query
    select u.n from (
        select u.*, row_number() over (partition by holdfast.dedupe_scope(u.type, u.key), u.key order by u.n) as nth
          from unnest(p_type, p_dedupe, p_id) with ordinality u (type, key, id, n) where u.key is not null) u
     where u.nth > 1 or u.id <> all (coalesce(v_taken, '{}'));
end
$$;
