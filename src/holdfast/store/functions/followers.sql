-- The messages that follow locked heads in their streams, as far as they may be handed out with them, and for each
-- head the last position of its run, how many follow it, and their bytes. A parked, waiting or suspect follower ends the
-- run before it.
create or replace function holdfast.followers(
    p_head bigint[], p_position bigint[], p_runs int[], p_count int, p_bytes bigint, p_now timestamptz,
    out seqs bigint[], out runs bigint[], out ends bigint[], out counts bigint[], out sizes bigint[])
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    with chosen as materialized (
        select x.seq, x.run, x.position, x.nth, x.bytes from (
            select f.seq, h.seq as run, f.position, h.nth, f.bytes,
                   row_number() over w as n, sum(f.bytes) over w - f.bytes as before
              from unnest(p_head, p_position, p_runs) with ordinality h (seq, position, run, nth)
              join holdfast.message m on m.seq between h.seq and h.seq
             cross join lateral (
                select t.seq, t.position, octet_length(t.body) as bytes,
                       bool_and(t.claimable_at <= p_now and t.vanished = 0) over (order by t.position) as takeable
                  from (select t.seq, t.position, t.body, t.claimable_at, t.vanished from holdfast.message t
                         where t.queue = m.queue and t.stream = m.stream and t.position > h.position
                         order by t.position limit h.run - 1) t) f
             where h.position is not null and f.takeable
            window w as (order by h.nth, f.position rows unbounded preceding)) x
         where x.n <= p_count and x.before < p_bytes)
    select array(select c.seq from chosen c), array(select c.run from chosen c), array_agg(r.place order by r.nth),
           array_agg(r.count order by r.nth), array_agg(r.bytes order by r.nth)
      into seqs, runs, ends, counts, sizes
      from (select e.nth, max(e.position) as place, count(e.bytes) as count, sum(e.bytes) as bytes
              from (select h.nth, h.position, null as bytes from unnest(p_position) with ordinality h (position, nth)
                     union all  -- not a join: without hashes it would look at all followers for each head
                    select c.nth, c.position, c.bytes from chosen c) e
             group by e.nth) r;
end
$$;
