-- Which queues of families have something claimable, by skipping through the claim index: from one queue with heads to
-- the next, at most so many, behind a queue. Answers [family, queues, the last one passed if there are more, seconds],
-- and when the next head falls due of those that have nothing yet. The plan is pinned by `exchange`.
create or replace function holdfast.look(
    p_family text[], p_after text[], p_count int[], p_paused text[], p_now timestamptz, out live json, out next timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_began timestamptz; v_live text[]; v_last text; v_passed bigint; v_due timestamptz; v_found json[] := '{}';
begin
    for v_n in 1..cardinality(p_family) loop
        v_began := clock_timestamp();
        with recursive q (name, at, n) as (
            (select m.queue, m.claimable_at, 1 from holdfast.message m
              where m.head and m.vanished = 0 and m.queue > coalesce(p_after[v_n], p_family[v_n] || '/') and m.queue < p_family[v_n] || '0'
              order by m.queue, m.claimable_at, m.seq limit 1)
             union all
            select x.queue, x.claimable_at, q.n + 1 from q
             cross join lateral (
                select m.queue, m.claimable_at from holdfast.message m
                 where m.head and m.vanished = 0 and m.queue > q.name and m.queue < p_family[v_n] || '0'
                 order by m.queue, m.claimable_at, m.seq limit 1) x
             where p_count[v_n] is null or q.n < p_count[v_n])
        select array_agg(q.name) filter (where q.at <= p_now and q.name <> all (p_paused)), max(q.name), count(*),
               min(q.at) filter (where q.at > p_now and q.at < 'infinity' and q.name <> all (p_paused))
          into v_live, v_last, v_passed, v_due from q;
        v_found := v_found || json_build_array(p_family[v_n], coalesce(v_live, '{}'),
            case when v_passed = p_count[v_n] then v_last end, extract(epoch from clock_timestamp() - v_began));
        next := least(next, v_due);
    end loop;
    live := array_to_json(v_found);
end
$$;
