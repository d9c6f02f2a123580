-- Store new messages in the caller's transaction. Answers the duplicates only: their number in the call and the id
-- of the message that had the key first. Places are given when the transaction commits (place_mine), or here when it
-- is our own and ends with this call (`p_place`). A time that a test gave is kept until the commit.
-- Like all that a producer may call it runs with the rights of the owner: a producer may publish, and see or change nothing.
create or replace function holdfast.append(
    p_id uuid[], p_type text[], p_body text[], p_stream text[], p_subject text[], p_headers text[], p_dedupe text[],
    p_due timestamptz[], p_delay float8[], p_deadline timestamptz[], p_queue text[], p_status int[],
    p_kept int[], p_place boolean, p_now timestamptz)
returns table (n bigint, id uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_duplicates bigint[] := '{}';
    v_queues text[];
    v_drafts holdfast.draft[];
    v_first timestamptz;
begin
    if p_now is not null then
        perform set_config('holdfast.now', p_now::text, true);
    end if;
    if p_status is not null then
        if exists (select from unnest(p_status) s where s not in (1, 3)) then
            raise exception using errcode = 'invalid_parameter_value',
                message = 'holdfast: a new message can have no flag but that of an event';
        end if;
    end if;
    if p_dedupe is not null then
        -- step: append_dedupe
        for n, id in select x.n, x.id from holdfast.dedupe_new(p_id, p_type, p_dedupe, p_kept) x loop
            v_duplicates := v_duplicates || n;
            return next;
        end loop;
    end if;
    if p_place then
        v_drafts := array(
            select row(d.n, d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at, d.due_at,
                       d.deadline, d.queue, d.target, d.status, d.ordered)::holdfast.draft
              from holdfast.drafts(p_id, p_type, p_body, p_stream, p_subject, p_headers, p_dedupe, p_due, p_delay,
                                   p_deadline, p_queue, p_status, v_now) d
             where d.n <> all (v_duplicates) order by d.n);
        perform holdfast.advance(null, null, null, null, null, v_drafts, v_now);
        return;
    end if;
    if p_stream is not null then
        perform holdfast.guess_no_more();
    end if;
    -- step: append_insert
    with m as (
        insert into holdfast.message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at,
                                      due_at, deadline, queue, plain, target, status, head, xact)
        select d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at, v_now,
               d.due_at, d.deadline, d.queue, null, d.target, d.status, not d.ordered,
               case when d.ordered and d.queue is not null then pg_current_xact_id() end
          from holdfast.drafts(p_id, p_type, p_body, p_stream, p_subject, p_headers, p_dedupe, p_due, p_delay,
                               p_deadline, p_queue, p_status, v_now) d
         where d.n <> all (v_duplicates) and not holdfast.is_later(d.queue, d.claimable_at, v_now)
        returning queue)
    select array_agg(distinct m.queue) into v_queues from m;
    if p_due is not null or p_delay is not null then
        -- step: append_scheduled
        with m as (
            insert into holdfast.scheduled (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at,
                                            deadline, queue, target, status)
            select d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at, v_now, d.due_at,
                   d.deadline, d.queue, d.target, d.status
              from holdfast.drafts(p_id, p_type, p_body, p_stream, p_subject, p_headers, p_dedupe, p_due, p_delay,
                                   p_deadline, p_queue, p_status, v_now) d
             where d.n <> all (v_duplicates) and holdfast.is_later(d.queue, d.claimable_at, v_now) order by d.n
            returning claimable_at)
        select min(m.claimable_at) into v_first from m;
        perform holdfast.wake_due(v_first, v_now);
    end if;
    perform holdfast.nudge(v_queues);
end
$$;
