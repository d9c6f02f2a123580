-- What turns of orchestrations leave behind: a journal row each and the state of the instance, fenced by (execution, turn).
-- A row without a body stores no turn: it pauses the instance where it stands. One that an operator has suspended stays so.
-- Instance rows are locked sorted, after leases and before streams.
create or replace function holdfast.apply_turns(p_rows json, p_now timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    r record; v_count int; v_calls bigint[];
begin
    -- A statement for all. One that is not the next of its instance, or not the only one here, refuses all.
    with given as materialized (
        select g.* from json_to_recordset(p_rows) as g (
               id text, execution int, turn int, part int, body text, begin text, state text, mark uuid, result text,
               poison uuid, trouble text, status text, attributes text, entries int, size bigint)
         order by g.id),
    turned as (
        update holdfast.instance i
           set execution = case when g.begin is null then i.execution else i.execution + 1 end,
               turn = case when g.body is null then i.turn when g.begin is null then i.turn + 1 else 0 end,
               state = case when g.body is null then case i.state when 'suspended' then i.state else 'paused' end
                            when i.state = 'suspended' and g.state = 'running' then i.state
                            else g.state end,
               trouble = case when g.body is not null and i.state = 'suspended' and g.state = 'running' then i.trouble
                              else g.trouble end,
               mark = case when g.body is null then i.mark else g.mark end,
               result = case when g.body is null then i.result else g.result end,
               poison = case when g.body is null then i.poison else g.poison end,
               status = coalesce(g.status, i.status), attributes = coalesce(g.attributes, i.attributes),
               entries = case when g.body is null then i.entries when g.begin is null then g.entries else 0 end,
               size = case when g.body is null then i.size when g.begin is null then g.size else 0 end,
               turned_at = case when g.body is null then i.turned_at else p_now end,
               ended_at = case when g.body is null then i.ended_at when g.state <> 'running' then p_now end
          from given g
         where i.id between g.id and g.id  -- as in settle_done: an equality would read all instances, once for each
           and i.execution = g.execution and i.turn = g.turn - 1 and i.state in ('running', 'suspended')
        returning g.id, g.execution, g.turn, g.part, g.body, g.begin),
    stored as (
        insert into holdfast.journal (id, execution, turn, part, body)
        select t.id, t.execution, t.turn, t.part, t.body from turned t where t.body is not null
         union all
        select t.id, t.execution + 1, 0, 0, t.begin from turned t where t.begin is not null)
    select count(*) into v_count from turned;
    if v_count <> json_array_length(p_rows) then
        raise exception using errcode = '23000',
            message = 'holdfast: the turn of an orchestration is not the next one of its instance';
    end if;
    -- What few turns do: continue as new, start others, withdraw what they do not wait for any more.
    for r in select g.id, g.execution, g.begin as next, g.starts, g.timers, g.calls from json_to_recordset(p_rows) as g (
                    id text, execution int, begin text, starts json, timers json, calls json)
              where g.begin is not null or json_array_length(g.starts) > 0
                 or json_array_length(g.timers) > 0 or json_array_length(g.calls) > 0
              order by g.id
    loop
        if r.next is not null then
            -- What runs for ever keeps the execution that has just ended, and none before.
            delete from holdfast.journal j where j.id = r.id and j.execution < r.execution;
        end if;
        insert into holdfast.instance (id, queue, start, mark, reply, attributes, started_at)
        select s.value ->> 'id', s.value ->> 'queue', (s.value ->> 'start')::uuid, (s.value ->> 'start')::uuid,
               s.value ->> 'reply', s.value ->> 'attributes', p_now
          from json_array_elements(r.starts) s order by 1
            on conflict (id) do nothing;
        if found then
            perform holdfast.pass_on_signals(array(select s.value ->> 'id' from json_array_elements(r.starts) s), p_now);
        end if;
        -- Timers that are not waited for any more. One that is locked is brought over at this moment, and comes late.
        delete from holdfast.scheduled m
         where m.seq in (select t.seq from holdfast.scheduled t
                          where t.queue = 'holdfast/timer'
                            and t.id = any (array(select w.value::uuid from json_array_elements_text(r.timers) w))
                            for update skip locked);
        -- Calls that are not waited for any more: who runs one is asked to stop, the others end here. What is locked is
        -- being handed out, settled or renewed at this moment. To wait for it could be a deadlock, so a message lets a
        -- worker look again a moment later.
        continue when coalesce(json_array_length(r.calls), 0) = 0;
        v_calls := array(select m.seq from holdfast.message m
                          where m.stream is null
                            and m.id = any (array(select w.value::uuid from json_array_elements_text(r.calls) w))
                            for update skip locked);
        insert into holdfast.message (type, body, claimable_at, created_at, queue, plain)
        select 'holdfast.withdraw', json_agg(m.id)::text, p_now + interval '1 second', p_now, 'holdfast/signals', null
          from holdfast.message m
         where m.stream is null and m.seq <> all (v_calls)
           and m.id = any (array(select w.value::uuid from json_array_elements_text(r.calls) w))
        having count(*) > 0;
        -- In statements of their own: only now do they see the leases of what was handed out before we had the lock.
        update holdfast.lease k set cancel = true
         where k.seq in (select l.seq from holdfast.lease l where l.seq = any (v_calls) for update skip locked);
        v_calls := array(select c from unnest(v_calls) c
                          where not exists (select 1 from holdfast.lease l where l.seq = c));
        insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream,
                                      subject, why)
        select p_now, coalesce(m.due_at, m.created_at), m.id, m.status, m.attempts, m.failures, 'cancelled',
               coalesce(m.queue, ''), m.type, m.stream, m.subject, 'withdrawn by its orchestration'
          from holdfast.message m where m.seq = any (v_calls);
        delete from holdfast.message m where m.seq = any (v_calls);
        with gone as (
            delete from holdfast.scheduled s
             where s.seq in (select t.seq from holdfast.scheduled t
                              where t.stream is null
                                and t.id = any (array(select w.value::uuid from json_array_elements_text(r.calls) w))
                                for update skip locked)
            returning s.due_at, s.created_at, s.id, s.status, s.queue, s.type, s.subject)
        insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, subject, why)
        select p_now, coalesce(g.due_at, g.created_at), g.id, g.status, 0, 0, 'cancelled', g.queue, g.type, g.subject,
               'withdrawn by its orchestration'
          from gone g;
    end loop;
end
$$;
