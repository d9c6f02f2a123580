-- Messages that nobody had subscribed to go to the queues that subscribe to them now, oldest first.
-- They get a new number, as if published now: among what becomes claimable at one instant, numbers decide. Where another
-- message with the same id is pending, it becomes a dead letter of that queue. Nothing of it can have ended there: it was
-- in nobody's queue.
create or replace function holdfast.adopt(p_limit int, p_now timestamptz) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    m holdfast.message; v_queues text[]; v_stored text[]; v_count int := 0;
begin
    for m in
        select t.* from holdfast.message t
         where t.queue is null and exists (select 1 from holdfast.route(t.type))
         order by t.seq limit p_limit for update skip locked
    loop
        v_queues := array(select r.queue from holdfast.route(m.type) r (queue) order by 1);
        -- step: adopt_deliver
        with stored as (
            insert into holdfast.message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, plain, type,
                                          stream, subject, dedupe, headers, body)
            select greatest(m.claimable_at, v_now), m.created_at, m.due_at, m.deadline, m.id,
                   case when not h.head then pg_current_xact_id() end, m.status, h.head, q, null, m.type,
                   m.stream, m.subject, m.dedupe, m.headers, m.body
              from unnest(v_queues) q
             cross join lateral (select m.stream is null or not holdfast.keeps_order(q) as head) h
                on conflict do nothing  -- waits for one who is just storing the same id
            returning queue)
        select array_agg(s.queue) into v_stored from stored s;
        if coalesce(cardinality(v_stored), 0) < cardinality(v_queues) then
            insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures,
                vanished, refunds, redrives, reason, created_at, due_at, deadline, died_at, errors, headers, body)
            select m.id, q, holdfast.dead_number(m.id, q, m.seq), m.type, m.stream, m.subject, m.dedupe, m.status | 32768, least(m.epoch, 2147483646) + 1, m.attempts,
                   m.failures, m.vanished, m.refunds, m.redrives, 12, m.created_at, m.due_at, m.deadline, v_now,
                   holdfast.with_error(m.errors, v_now, 12, holdfast.taken(m.id, q), 10), m.headers, m.body
              from unnest(v_queues) q where v_stored is null or q <> all (v_stored);
        end if;
        delete from holdfast.message t where t.seq = m.seq;
        v_count := v_count + 1;
    end loop;
    -- step: adopt_place
    perform holdfast.place(pg_current_xact_id(), v_now);
    return v_count;
end
$$;
