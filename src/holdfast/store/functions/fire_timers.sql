-- Take out the timers that are due and answer them as something to emit, with the same id; subscribers are those of
-- this moment. They enter their streams together with what the same transaction settles: rows of streams are sorted
-- only within one statement.
create or replace function holdfast.fire_timers(p_limit int, p_now timestamptz) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_emits json;
begin
    with fired as (
        delete from holdfast.message m where m.seq = any (array(
            select t.seq from holdfast.message t
             where t.queue = 'holdfast/timer' and t.head and t.vanished = 0 and t.claimable_at <= p_now
             order by t.claimable_at, t.seq limit p_limit for update skip locked))
        returning m.id, m.type, m.body, m.stream, m.subject, m.headers, m.dedupe, m.due_at, m.deadline, m.target,
                  m.status, m.claimable_at, m.seq)
    select json_agg(json_build_object('id', f.id, 'type', f.type, 'body', f.body, 'stream', f.stream,
                    'subject', f.subject, 'headers', f.headers, 'due_at', f.due_at,
                    'deadline', f.deadline, 'queue', f.target, 'status', f.status, 'dedupe', f.dedupe)
                    order by f.claimable_at, f.seq)
      into v_emits from fired f;
    return v_emits;
end
$$;
