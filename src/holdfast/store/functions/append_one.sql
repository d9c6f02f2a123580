-- Store one message without a dedupe key in the caller's transaction: what `append` does, in one statement that is not
-- made of arrays, which is what most of `append` costs when there is but one.
create or replace function holdfast.append_one(
    p_id uuid, p_type text, p_body text, p_stream text, p_subject text, p_headers text, p_due timestamptz,
    p_delay float8, p_deadline timestamptz, p_queue text, p_now timestamptz)
returns void
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_due timestamptz := coalesce(p_due, v_now + p_delay * interval '1 second');
    v_told bigint;
begin
    if p_now is not null then
        perform set_config('holdfast.now', p_now::text, true);
    end if;
    -- step: append_one
    with m as (
        insert into holdfast.message (id, type, body, stream, subject, headers, claimable_at, created_at, due_at,
                                      deadline, queue, head, xact)
        select p_id, p_type, p_body, p_stream, p_subject, p_headers, greatest(v_due, v_now), v_now, v_due,
               p_deadline, r.queue, not r.ordered,
               case when r.ordered and r.queue is not null then pg_current_xact_id() end
          from (select t.queue, p_stream is not null and
                       coalesce((select q.ordered from holdfast.queue q where q.name = t.queue), true) as ordered
                  from (select coalesce(p_queue, s.queue) as queue
                          from (select) one left join holdfast.route(p_type) s (queue) on p_queue is null) t) r
        returning queue)
    select count(pg_notify('holdfast', '')) into v_told
      from (select from holdfast.worker w where w.asleep and w.queues && array(select m.queue from m) limit 1) w;
end
$$;
