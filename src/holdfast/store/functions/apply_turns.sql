-- What turns of orchestrations leave behind: a journal row each and the state of the instance, fenced by (execution, turn).
-- A row without a body stores no turn: it pauses the instance where it stands. One that an operator has suspended stays so.
-- Instance rows are locked sorted, after leases and before streams.
create or replace function holdfast.apply_turns(p_rows json, p_now timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    r json; v_begin text; v_body text; v_state text; v_calls bigint[];
begin
    for r in select e.value from json_array_elements(p_rows) e order by e.value ->> 'id', (e.value ->> 'turn')::int
    loop
        v_begin := r ->> 'begin';
        v_body := r ->> 'body';
        v_state := r ->> 'state';
        if v_body is null then
            update holdfast.instance i
               set state = case i.state when 'suspended' then i.state else 'paused' end, trouble = r ->> 'trouble'
             where i.id = r ->> 'id' and i.execution = (r ->> 'execution')::int
               and i.turn = (r ->> 'turn')::int - 1 and i.state in ('running', 'suspended');
        else
            update holdfast.instance i
               set execution = case when v_begin is null then i.execution else i.execution + 1 end,
                   turn = case when v_begin is null then i.turn + 1 else 0 end,
                   state = case when i.state = 'suspended' and v_state = 'running' then i.state else v_state end,
                   mark = (r ->> 'mark')::uuid, result = r ->> 'result', poison = (r ->> 'poison')::uuid,
                   trouble = case when i.state = 'suspended' and v_state = 'running' then i.trouble else r ->> 'trouble' end,
                   status = coalesce(r ->> 'status', i.status),
                   attributes = coalesce(r ->> 'attributes', i.attributes),
                   entries = case when v_begin is null then (r ->> 'entries')::int else 0 end,
                   size = case when v_begin is null then (r ->> 'size')::bigint else 0 end,
                   turned_at = p_now, ended_at = case when v_state <> 'running' then p_now end
             where i.id = r ->> 'id' and i.execution = (r ->> 'execution')::int
               and i.turn = (r ->> 'turn')::int - 1 and i.state in ('running', 'suspended');
        end if;
        if not found then
            raise exception using errcode = '23000',
                message = 'holdfast: the turn of an orchestration is not the next one of its instance';
        end if;
        continue when v_body is null;
        insert into holdfast.journal (id, execution, turn, part, body)
        values (r ->> 'id', (r ->> 'execution')::int, (r ->> 'turn')::int, (r ->> 'part')::int, v_body);
        if v_begin is not null then
            insert into holdfast.journal (id, execution, turn, part, body)
            values (r ->> 'id', (r ->> 'execution')::int + 1, 0, 0, v_begin);
            -- What runs for ever keeps the execution that has just ended, and none before.
            delete from holdfast.journal j where j.id = r ->> 'id' and j.execution < (r ->> 'execution')::int;
        end if;
        insert into holdfast.instance (id, queue, start, mark, reply, attributes, started_at)
        select s.value ->> 'id', s.value ->> 'queue', (s.value ->> 'start')::uuid, (s.value ->> 'start')::uuid,
               s.value ->> 'reply', s.value ->> 'attributes', p_now
          from json_array_elements(r -> 'starts') s order by 1
            on conflict (id) do nothing;
        -- Timers that are not waited for any more. One that is locked is brought over at this moment, and comes late.
        delete from holdfast.scheduled m
         where m.seq in (select t.seq from holdfast.scheduled t
                          where t.queue = 'holdfast/timer'
                            and t.id = any (array(select w.value::uuid from json_array_elements_text(r -> 'timers') w))
                            for update skip locked);
        -- Calls that are not waited for any more: who runs one is asked to stop, the others end here. What is locked is
        -- being handed out, settled or renewed at this moment, and comes late: to wait for it could be a deadlock.
        continue when json_array_length(coalesce(r -> 'calls', '[]')) = 0;
        v_calls := array(select m.seq from holdfast.message m
                          where m.stream is null
                            and m.id = any (array(select w.value::uuid from json_array_elements_text(r -> 'calls') w))
                            for update skip locked);
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
                                and t.id = any (array(select w.value::uuid from json_array_elements_text(r -> 'calls') w))
                                for update skip locked)
            returning s.due_at, s.created_at, s.id, s.status, s.queue, s.type, s.subject)
        insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, subject, why)
        select p_now, coalesce(g.due_at, g.created_at), g.id, g.status, 0, 0, 'cancelled', g.queue, g.type, g.subject,
               'withdrawn by its orchestration'
          from gone g;
    end loop;
end
$$;
