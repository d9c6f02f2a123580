-- Store the messages of occurrences, claimable since their own time: claims are the oldest first, also across schedules.
-- Where a message with the id is pending or dead in a queue, that delivery is left out. Answers these (id, queue) and, without
-- an id, the queues that got something.
create or replace function holdfast.fire(
    p_id uuid[], p_type text[], p_body text[], p_stream text[], p_subject text[], p_headers text[], p_due timestamptz[],
    p_queue text[], p_now timestamptz)
returns table (id uuid, queue text)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_drafts holdfast.draft[]; v_taken bigint[];
begin
    v_drafts := array(
        select row(d.n, d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.due_at, d.due_at,
                   d.deadline, d.queue, d.target, d.status, d.ordered)::holdfast.draft
          from holdfast.drafts(p_id, p_type, p_body, p_stream, p_subject, p_headers, null, p_due, null, null,
                               p_queue, null, v_now) d order by d.n);
    -- step: fire_taken
    select array_agg(x.place) into v_taken
      from (select d.id, d.queue, row_number() over () as place from unnest(v_drafts) d) x
     where exists (select 1 from holdfast.message m
                    where m.id = x.id and (m.queue = x.queue or coalesce(m.queue, x.queue) is null))
        or exists (select 1 from holdfast.scheduled t where t.id = x.id and (t.queue = x.queue or t.queue = 'holdfast/timer'))
        or exists (select 1 from holdfast.dead a where a.id = x.id and a.queue = x.queue);
    if v_taken is not null then
        return query select d.id, coalesce(d.queue, '')
          from unnest(v_taken) t (place) cross join lateral (select (v_drafts[t.place]).*) d;
        v_drafts := array(select v_drafts[u.place] from generate_subscripts(v_drafts, 1) u (place)
                           where u.place <> all (v_taken) order by u.place);
    end if;
    if cardinality(v_drafts) > 0 then
        -- step: fire_store
        perform holdfast.advance(null, null, null, null, null, v_drafts, v_now);
        return query select distinct null::uuid, d.queue from unnest(v_drafts) d where d.queue is not null;
    end if;
end
$$;
