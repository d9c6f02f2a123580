-- Settle the streams: count out what left the order and count in what is emitted, all rows sorted in one statement;
-- then, in a new statement, make the lowest waiting message the head; then store what is emitted with its places.
-- A guess takes its stream like the others, and is decided as soon as all of them are locked.
-- Where something comes in, `last` becomes null, so that no position holds that was guessed before.
create or replace function holdfast.advance(
    p_queue text[], p_stream text[], p_removed int[], p_start bigint[], p_halt text[], p_drafts holdfast.draft[],
    p_now timestamptz, p_guesses json default null)
returns void
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_queues text[]; v_first timestamptz;
begin
    -- step: advance_streams
    insert into holdfast.stream as s (queue, name, open, halted_by, halted_at, last)
    select x.queue, x.stream, sum(x.n), max(x.halt), case when max(x.halt) is not null then p_now end,
           case when max(x.n) <= 0 then 0 end
      from (select u.queue, u.stream, -u.removed as n, u.halt
              from unnest(p_queue, p_stream, p_removed, p_halt) u (queue, stream, removed, halt)
             union all
            select d.queue, d.stream, 1, null from unnest(p_drafts) d where d.ordered and d.queue is not null
             union all
            select g.queue, g.id, 0, null from json_to_recordset(p_guesses) g (queue text, id text)) x
     group by x.queue, x.stream order by x.queue, x.stream
        on conflict (queue, name) do update
       set open = s.open + excluded.open, halted_by = coalesce(s.halted_by, excluded.halted_by),
           halted_at = coalesce(s.halted_at, excluded.halted_at), last = s.last + excluded.last;
    if current_setting('transaction_isolation') <> 'read committed' then
        perform holdfast.refuse_stale(array_agg(x.queue), array_agg(x.stream))
           from (select u.queue, u.stream from unnest(p_queue, p_stream) u (queue, stream)
                  union all select d.queue, d.stream from unnest(p_drafts) d where d.ordered) x;
    end if;
    if p_guesses is not null then
        -- step: advance_guesses
        p_drafts := p_drafts || holdfast.guessed(p_guesses, p_now);
    end if;
    -- step: advance_promote
    update holdfast.message m set head = true, xact = null, claimable_at = greatest(m.claimable_at, p_now)
     where m.seq = any (array(
        select f.seq from unnest(p_queue, p_stream, p_start) u (queue, stream, start)
         cross join lateral (
               select from holdfast.stream s where s.queue = u.queue and s.name = u.stream and s.halted_by is null offset 0) s
         cross join lateral (
               select f.seq, f.head from holdfast.message f
                where f.queue = u.queue and f.stream = u.stream and f.position >= u.start
                order by f.position limit 1) f
         where not f.head));
    if p_drafts is not null then
        -- step: advance_emit
        insert into holdfast.message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at,
                                      due_at, deadline, queue, plain, target, status, position, head)
        select x.id, x.type, x.body, x.stream, x.subject, x.headers, x.dedupe, x.claimable_at, p_now, x.due_at,
               x.deadline, x.queue, null, x.target, x.status,
               case when x.ordered and x.queue is not null then nextval('holdfast.position') end,
               case when x.ordered then x.nth = 1 and x.count = s.open and s.halted_by is null else true end
          from (select d.*, row_number() over (partition by d.ordered, d.queue, d.stream order by d.n) as nth,
                       count(*) over (partition by d.ordered, d.queue, d.stream) as count
                  from unnest(p_drafts) d where not holdfast.is_later(d.queue, d.claimable_at, p_now) order by d.n) x
          left join holdfast.stream s on x.ordered and s.queue = x.queue and s.name = x.stream;
        select array_agg(distinct d.queue) filter (where not d.later), min(d.claimable_at) filter (where d.later)
          into v_queues, v_first
          from (select d.queue, d.claimable_at, holdfast.is_later(d.queue, d.claimable_at, p_now) as later
                  from unnest(p_drafts) d) d;
        if v_first is not null then
            -- step: advance_scheduled
            insert into holdfast.scheduled (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at,
                                            deadline, queue, target, status)
            select d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at, p_now, d.due_at,
                   d.deadline, d.queue, d.target, d.status
              from unnest(p_drafts) d where holdfast.is_later(d.queue, d.claimable_at, p_now) order by d.n;
            perform holdfast.wake_due(v_first, p_now);
        end if;
        perform holdfast.nudge(v_queues);
    end if;
end
$$;
