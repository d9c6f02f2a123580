-- One turn of a worker: settle what ended, store what it emits, promote, claim, and say when the next
-- thing falls due. One round trip, one commit. The first row answers for the turn itself, the others are work.
create or replace function holdfast.exchange(
    p_worker bigint,
    p_seq bigint[], p_run bigint[], p_epoch int[], p_ran int[], p_other json, p_move_from bigint[], p_move_to bigint[],
    p_emits json, p_deltas json, p_keep int,
    p_queue text[], p_heads int[], p_after_at timestamptz[], p_after_seq bigint[], p_total int,
    p_lease float8, p_runs int[], p_bytes bigint, p_suspects boolean, p_peek boolean, p_asleep boolean,
    p_family text[], p_family_after text[], p_family_count int[], p_without text[],
    p_now timestamptz)
returns table (
    seq bigint, id uuid, queue text, type text, body text, stream text, place bigint, subject text, headers text,
    status int, attempts int, failures int, vanished int, refunds int, created_at timestamptz, due_at timestamptz,
    deadline timestamptz, epoch int, run bigint, claimable_at timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_held bigint[]; v_next timestamptz; v_suspects boolean := false; v_queue text[]; v_paused text[];
    v_seq bigint[]; v_run bigint[]; v_shares json;
    v_began timestamptz; v_took bigint; v_missed boolean; v_found json; v_found_next timestamptz;
begin
    -- Whoever lost the answer to an exchange waits here until it has ended, before it looks what became of it.
    perform pg_advisory_xact_lock(hashtext('holdfast.exchange'), p_worker::int);
    if p_asleep is not null then
        update holdfast.worker w set asleep = p_asleep where w.id = p_worker and w.asleep <> p_asleep;
    end if;
    if p_seq is not null or p_other is not null then
        v_held := holdfast.settle(p_seq, p_run, p_epoch, p_ran, p_other, p_move_from, p_move_to, p_emits, p_deltas, p_keep,
                                  false, v_now);
    end if;
    -- step: exchange_claim
    v_queue := p_queue;
    v_paused := array(select q.name from holdfast.queue q where q.paused_at is not null);
    if p_queue is not null and cardinality(v_paused) > 0 then
        v_queue := array(select case when u.name <> all (v_paused) then u.name end
                           from unnest(p_queue) with ordinality u (name, n) order by u.n);
    end if;
    if p_suspects then
        v_seq := holdfast.claim_suspect(p_worker, v_queue, p_family, p_without || v_paused, p_lease, v_now);
        v_run := v_seq;
    elsif v_queue is not null and p_total > 0 then
        v_began := clock_timestamp();
        select c.seqs, c.runs, c.shares, c.missed into v_seq, v_run, v_shares, v_missed
          from holdfast.claim(p_worker, v_queue, p_heads, p_runs, p_after_at, p_after_seq, p_total, p_lease, p_bytes, v_now) c;
        if v_missed then  -- an empty answer says that nothing was claimable, not that others were quicker
            for v_try in 1..20 loop
                select c.seqs, c.runs, c.shares, c.missed into v_seq, v_run, v_shares, v_missed
                  from holdfast.claim(p_worker, v_queue, p_heads, p_runs, p_after_at, p_after_seq, p_total, p_lease, p_bytes, v_now) c;
                exit when v_missed is null;
            end loop;
        end if;
        v_took := extract(epoch from clock_timestamp() - v_began) * 1e6;
    end if;
    if p_family is not null and not p_suspects then
        select l.live, l.next into v_found, v_found_next
          from holdfast.look(p_family, p_family_after, p_family_count, v_paused, v_now) l;
    end if;
    if p_peek then
        select nullif(min(x.at), 'infinity'), bool_or(x.suspect) into v_next, v_suspects
          from unnest(v_queue) w (queue)
         cross join lateral (
            (select m.claimable_at as at, false as suspect from holdfast.message m
              where m.queue = w.queue and m.head and m.vanished = 0 and m.claimable_at > v_now
              order by m.claimable_at limit 1)
             union all
            (select m.claimable_at, false from holdfast.message m
              where m.queue = w.queue and m.head and m.vanished > 0 and m.claimable_at > v_now
              order by m.claimable_at limit 1)
             union all
            (select null, true from holdfast.message m
              where m.queue = w.queue and m.head and m.vanished > 0 and m.claimable_at <= v_now limit 1)) x;
        if v_seq is null and p_total > 0 and not p_suspects and exists (
            select 1 from unnest(v_queue, p_heads, p_after_at, p_after_seq) w (queue, heads, at, seq)
             cross join lateral (
                select 1 from holdfast.message m
                 where m.queue = w.queue and m.head and m.vanished = 0 and m.claimable_at <= v_now
                   and (m.claimable_at, m.seq) > (coalesce(w.at, '-infinity'), coalesce(w.seq, 0))
                   and (select l.epoch from holdfast.lease l where l.seq = m.seq) is null limit 1) m
             where w.heads > 0) then
            -- Somebody holds it at this moment without having leased it, and may leave it: look again soon.
            v_next := least(v_next, v_now + interval '10 milliseconds');
        end if;
        if p_family is not null then
            v_next := least(v_next, v_found_next);
            v_suspects := coalesce(v_suspects, false) or exists (
                select 1 from unnest(p_family) f (name) cross join lateral (
                    select 1 from holdfast.message m
                     where m.queue > f.name || '/' and m.queue < f.name || '0' and m.head and m.vanished > 0
                       and m.claimable_at <= v_now and m.queue <> all (v_paused) limit 1) m);
        end if;
    end if;
    return query select null::bigint, null::uuid, null::text, null::text,
        case when cardinality(v_paused) > 0 then to_json(v_paused)::text end, v_found::text, v_took,
        v_shares::text,
        case when cardinality(v_held) < coalesce(cardinality(p_seq), 0) + coalesce(json_array_length(p_other), 0)
             then array_to_string(v_held, ',') end,
        null::int, null::int, null::int, coalesce(v_suspects, false)::int, null::int, v_now, v_next, null::timestamptz,
        null::int, null::bigint, null::timestamptz;
    if v_seq is not null then
        -- step: claim_read
        return query
        select m.seq, m.id, m.queue, m.type, m.body, m.stream, m.position, m.subject, m.headers, m.status, m.attempts,
               m.failures, m.vanished, m.refunds, m.created_at, m.due_at, m.deadline, least(m.epoch, 2147483646) + 1, u.run, m.claimable_at
          from unnest(v_seq, v_run) with ordinality u (seq, run, n) join holdfast.message m on m.seq between u.seq and u.seq
         order by u.n;
    end if;
end
$$;
