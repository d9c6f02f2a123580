-- Lease the oldest claimable heads of the queues wanted and, with each, the next messages of its stream. Heads that
-- another worker is taking are passed over, which passes over their streams. Followers are looked up in a new
-- statement, when their head is locked: nobody can change them then. Answers what is handed out, under which heads, and
-- how much of which queue that is, so that the worker can ask again before it reads it: [queue, messages, heads, whether
-- they are ordered, bytes, when and which the last head is]. `missed`: all that was found had been leased by others in
-- the meantime, so nothing is handed out although more may be there: `exchange` looks again, with a new snapshot.
-- The plan is pinned, here and by `exchange`: keys first through the claim index, the lease looked up one by one (a
-- scalar subquery cannot become a hash join).
create or replace function holdfast.claim(
    p_worker bigint, p_queue text[], p_heads int[], p_runs int[], p_after_at timestamptz[], p_after_seq bigint[],
    p_total int, p_lease float8, p_bytes bigint, p_now timestamptz,
    out seqs bigint[], out runs bigint[], out shares json, out missed boolean)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_sort = off
as $$
declare
    v_head bigint[]; v_epoch int[]; v_end bigint[]; v_runs int[]; v_sizes int[]; v_bytes bigint; v_streams int;
    v_want bigint[]; v_at timestamptz[]; v_behind bigint[]; v_behind_bytes bigint[];
    v_count int; v_leased bigint[]; v_found text[];
begin
    if cardinality(p_queue) > 16 then
        -- Most of many queues are empty: skip through the index from one queue with heads to the next. Are there more
        -- with heads than are asked for, each of these is looked at: that is the shorter way.
        with recursive q (name, n) as (
            (select m.queue, 1 from holdfast.message m where m.head and m.vanished = 0 and m.queue > ''
              order by m.queue limit 1)
             union all
            select (select m.queue from holdfast.message m where m.head and m.vanished = 0 and m.queue > q.name
                     order by m.queue limit 1), q.n + 1 from q where q.name is not null and q.n < cardinality(p_queue))
        select coalesce(array_agg(q.name) filter (where q.name = any (p_queue)), '{}'), count(q.name)
          into v_found, v_count from q;
        if v_count = cardinality(p_queue) then
            v_found := p_queue;
        elsif cardinality(v_found) = 0 then
            return;
        end if;
        select array_agg(u.name order by u.n), array_agg(u.heads order by u.n), array_agg(u.run order by u.n),
               array_agg(u.at order by u.n), array_agg(u.seq order by u.n)
          into p_queue, p_heads, p_runs, p_after_at, p_after_seq
          from unnest(p_queue, p_heads, p_runs, p_after_at, p_after_seq) with ordinality u (name, heads, run, at, seq, n)
         where u.name = any (v_found);
    end if;
    select array_agg(h.seq), array_agg(least(h.epoch, 2147483646) + 1), array_agg(h.position), count(h.position), array_agg(h.run),
           array_agg(h.bytes), sum(h.bytes), array_agg(h.want), array_agg(h.claimable_at)
      into v_head, v_epoch, v_end, v_streams, v_runs, v_sizes, v_bytes, v_want, v_at
      from (select h.*, w.run, w.want
              from unnest(p_queue, p_heads, p_runs, p_after_at, p_after_seq) with ordinality w (queue, heads, run, at, seq, want)
             cross join lateral (
                select m.seq, m.epoch, m.position, m.claimable_at, octet_length(m.body) as bytes
                  from holdfast.message m
                 where m.queue = w.queue and m.head and m.vanished = 0 and m.claimable_at <= p_now
                   and (m.claimable_at, m.seq) > (coalesce(w.at, '-infinity'), coalesce(w.seq, 0))
                   and (select l.epoch from holdfast.lease l where l.seq = m.seq) is null
                 order by m.claimable_at, m.seq limit w.heads for update of m skip locked) h
             limit p_total) h;
    if v_head is null then
        return;
    end if;
    if v_bytes > p_bytes then  -- the one that fills the room is the last
        select count(*), sum(x.bytes) into v_count, v_bytes
          from (select u.bytes, sum(u.bytes) over (order by u.n) - u.bytes as before
                  from unnest(v_sizes) with ordinality u (bytes, n)) x where x.before < p_bytes;
        v_head := v_head[:v_count]; v_epoch := v_epoch[:v_count]; v_end := v_end[:v_count]; v_runs := v_runs[:v_count];
        v_sizes := v_sizes[:v_count]; v_want := v_want[:v_count]; v_at := v_at[:v_count];
        select count(*) into v_streams from unnest(v_end) u (place) where u.place is not null;
    end if;
    seqs := v_head; runs := v_head;
    if v_streams > 0 then
        -- step: claim_followers
        select v_head || f.seqs, v_head || f.runs, f.ends, f.counts, f.sizes into seqs, runs, v_end, v_behind, v_behind_bytes
          from holdfast.followers(v_head, v_end, v_runs, p_total - cardinality(v_head), p_bytes - v_bytes, p_now) f;
    end if;
    -- step: claim_lease
    -- A head that was leased and left again since the first statement looked has its lease visible by now; nobody can
    -- add one while we hold the head. So there is nothing to conflict with (ON CONFLICT costs twice the insert).
    v_leased := array(select l.seq from holdfast.lease l where l.seq = any (v_head));
    if cardinality(v_leased) > 0 then
        select array_agg(u.seq order by u.n), array_agg(u.run_end order by u.n), array_agg(u.epoch order by u.n),
               array_agg(u.size order by u.n), array_agg(u.want order by u.n), array_agg(u.at order by u.n),
               array_agg(u.behind order by u.n), array_agg(u.behind_bytes order by u.n)
          into v_head, v_end, v_epoch, v_sizes, v_want, v_at, v_behind, v_behind_bytes
          from unnest(v_head, v_end, v_epoch, v_sizes, v_want, v_at, v_behind, v_behind_bytes)
               with ordinality u (seq, run_end, epoch, size, want, at, behind, behind_bytes, n) where u.seq <> all (v_leased);
        select array_agg(u.seq order by u.n), array_agg(u.run order by u.n) into seqs, runs
          from unnest(seqs, runs) with ordinality u (seq, run, n) where u.run <> all (v_leased);
        if v_head is null then
            missed := true;
            return;
        end if;
        v_bytes := (select sum(u.size) from unnest(v_sizes) u (size));
    end if;
    -- step: claim_insert
    insert into holdfast.lease (seq, until, worker, run_end, epoch)
    select u.seq, p_now + p_lease * interval '1 second', p_worker, u.run_end, u.epoch
      from unnest(v_head, v_end, v_epoch) u (seq, run_end, epoch);
    if v_want[1] = v_want[cardinality(v_want)] and v_streams = 0 then  -- of one queue and in no stream: it is counted
        v_count := cardinality(v_head);
        shares := json_build_array(json_build_array(p_queue[v_want[1]], v_count, v_count, false, v_bytes, v_at[v_count], v_head[v_count]));
        return;
    end if;
    select json_agg(json_build_array(p_queue[s.want], s.messages, s.heads, s.ordered, s.bytes, v_at[s.last], v_head[s.last]))
      into shares
      from (select u.want, count(*) + coalesce(sum(u.behind), 0) as messages, count(*) as heads, count(u.run_end) > 0 as ordered,
                   sum(u.size) + coalesce(sum(u.behind_bytes), 0) as bytes, max(u.n) as last
              from unnest(v_want, v_end, v_sizes, v_behind, v_behind_bytes)
                   with ordinality u (want, run_end, size, behind, behind_bytes, n)
             group by u.want) s;
end
$$;
