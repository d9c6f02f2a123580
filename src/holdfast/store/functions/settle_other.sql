-- Attempts that did not simply end well: wait and try again, leave the order, die, or end as cancelled; also those done
-- with steps to write down, and what follows such a message in its run. The delay, the counters and the place come
-- from the rules; here they are applied if the lease of the run still stands. Answers one row for each that was held;
-- `removed` says whether it left the order, `halt` what stops its stream, `dedupe` is the key of one that has ended.
-- One that pauses its stream stays at its place and is no head any more, until the stream is resumed.
create or replace function holdfast.settle_other(p_other json, p_keep int, p_now timestamptz)
returns table (seq bigint, run bigint, epoch int, queue text, stream text, place bigint, removed boolean, halt text,
               type text, dedupe text)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    o record;
    m holdfast.message;
begin
    for o in
        select x.*, l.worker from json_to_recordset(p_other) as x (
            seq bigint, run bigint, epoch int, outcome text, delay float8, flags int, failed boolean, counted boolean,
            refunded boolean, started boolean, aside boolean, halt boolean, pause text, reason int, last_reason int, error text, ran int,
            fingerprint text, traceback text)
          join holdfast.lease l on l.seq between x.run and x.run and l.epoch = x.epoch
    loop
        select * into m from holdfast.message t where t.seq = o.seq for update;
        continue when not found;
        m.status := m.status | o.flags;
        m.epoch := least(m.epoch, 2147483646) + 1;  -- no number fails the turn, however it came in
        m.attempts := least(m.attempts, 2147483646) + o.counted::int;
        m.failures := least(m.failures, 2147483646) + o.failed::int;
        m.refunds := least(m.refunds, 2147483646) + o.refunded::int;
        m.vanished := case when o.started then 0 else m.vanished end;
        m.errors := holdfast.with_error(m.errors, p_now, coalesce(o.last_reason, o.reason), o.error, p_keep);
        m.traceback := coalesce(o.traceback, m.traceback);
        seq := o.seq; run := o.run; epoch := o.epoch; queue := m.queue; stream := m.stream; place := m.position; halt := null;
        type := m.type; dedupe := null;
        removed := m.position is not null and (o.aside or o.outcome not in ('again'));
        if o.outcome in ('again', 'release') then
            update holdfast.message t
               set status = m.status, epoch = m.epoch, attempts = m.attempts, failures = m.failures,
                   refunds = m.refunds, vanished = m.vanished, errors = m.errors, traceback = m.traceback,
                   reason = coalesce(o.reason, t.reason),
                   claimable_at = p_now + o.delay * interval '1 second',
                   position = case when removed then null else t.position end, xact = null,
                   head = (t.head or removed) and not (o.pause is not null and t.position is not null)
             where t.seq = o.seq;
            halt := case when m.position is not null then o.pause end;
        else
            delete from holdfast.message t where t.seq = o.seq;
            if o.outcome = 'dead' then
                insert into holdfast.dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch,
                    attempts, failures, vanished, refunds, redrives, reason, last_reason, worker, created_at, due_at,
                    deadline, died_at, errors, headers, body, fingerprint, traceback)
                select m.id, m.queue, coalesce((select max(d.seq) + 1 from holdfast.dead d where d.id = m.id and d.queue = m.queue
                                  having bool_or(d.seq = m.seq)), m.seq), m.type, m.stream, m.position, m.subject,
                       m.dedupe, m.status, m.epoch,
                       m.attempts, m.failures, m.vanished, m.refunds, m.redrives, o.reason,
                       coalesce(o.last_reason, m.reason), (select w.name from holdfast.worker w where w.id = o.worker),
                       m.created_at, m.due_at, m.deadline, p_now, m.errors, m.headers, m.body, o.fingerprint, m.traceback;
                halt := case when o.halt and m.position is not null then m.id::text end;
            else
                insert into holdfast.history (ended_at, started_at, due_at, id, status, attempts, failures, outcome,
                                              queue, type, stream, subject, origin)
                values (p_now, p_now - o.ran * interval '1 millisecond', coalesce(m.due_at, m.created_at), m.id, m.status,
                        m.attempts, m.failures, o.outcome, m.queue, m.type, m.stream, m.subject,
                        case when ascii(m.dedupe) = 31 then m.dedupe end);
                dedupe := m.dedupe;
            end if;
        end if;
        return next;
    end loop;
end
$$;
