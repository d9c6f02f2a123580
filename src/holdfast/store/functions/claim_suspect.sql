-- Lease one suspect, alone: a message whose last hand-over never came back.
create or replace function holdfast.claim_suspect(p_worker bigint, p_queue text[], p_lease float8, p_now timestamptz)
returns table (
    seq bigint, id uuid, queue text, type text, body text, stream text, place bigint, subject text, headers text,
    status int, attempts int, failures int, vanished int, refunds int, created_at timestamptz, due_at timestamptz,
    deadline timestamptz, epoch int, run bigint, claimable_at timestamptz)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    m holdfast.message;
begin
    select s.* into m from unnest(p_queue) w (queue)
     cross join lateral (
        select t.* from holdfast.message t
         where t.queue = w.queue and t.head and t.vanished > 0 and t.claimable_at <= p_now
           and (select l.epoch from holdfast.lease l where l.seq = t.seq) is null
         order by t.claimable_at, t.seq limit 1 for update of t skip locked) s
     order by s.claimable_at, s.seq limit 1;
    if not found then
        return;
    end if;
    -- step: suspect_lease
    insert into holdfast.lease (seq, until, worker, epoch)
    values (m.seq, p_now + p_lease * interval '1 second', p_worker, m.epoch + 1) on conflict do nothing;
    if not found then
        return;
    end if;
    return query select m.seq, m.id, m.queue, m.type, m.body, m.stream, m.position, m.subject, m.headers, m.status,
        m.attempts, m.failures, m.vanished, m.refunds, m.created_at, m.due_at, m.deadline, m.epoch + 1, m.seq,
        m.claimable_at;
end
$$;
