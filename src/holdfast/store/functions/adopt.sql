-- Messages that nobody had subscribed to go to the queues that subscribe to them now, oldest first.
-- They get a new number, as if published now: among what becomes claimable at one instant, numbers decide.
create or replace function holdfast.adopt(p_limit int, p_now timestamptz) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    m holdfast.message; v_queues text[]; v_count int := 0;
begin
    for m in
        select t.* from holdfast.message t
         where t.queue is null and exists (select 1 from holdfast.route(t.type))
         order by t.seq limit p_limit for update skip locked
    loop
        v_queues := array(
            select r.queue from holdfast.route(m.type) r (queue)
             where not exists (select from holdfast.message t where t.id = m.id and t.queue = r.queue) order by 1);
        if cardinality(v_queues) = 0 then  -- published twice with one id
            delete from holdfast.message t where t.seq = m.seq;
            continue;
        end if;
        update holdfast.message t
           set seq = nextval(pg_get_serial_sequence('holdfast.message', 'seq')), queue = v_queues[1],
               claimable_at = greatest(t.claimable_at, v_now), head = h.head,
               xact = case when not h.head then pg_current_xact_id() end
          from (select m.stream is null or not holdfast.keeps_order(v_queues[1]) as head) h
         where t.seq = m.seq;
        insert into holdfast.message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, plain, type,
                                      stream, subject, dedupe, headers, body)
        select greatest(m.claimable_at, v_now), m.created_at, m.due_at, m.deadline, m.id,
               case when not h.head then pg_current_xact_id() end, m.status, h.head, q, null, m.type,
               m.stream, m.subject, m.dedupe, m.headers, m.body
          from unnest(v_queues[2:]) q
         cross join lateral (select m.stream is null or not holdfast.keeps_order(q) as head) h;
        v_count := v_count + 1;
    end loop;
    -- step: adopt_place
    perform holdfast.place(pg_current_xact_id(), v_now);
    return v_count;
end
$$;
