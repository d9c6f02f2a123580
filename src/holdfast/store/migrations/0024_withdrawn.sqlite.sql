-- A turn looks for the calls that it withdraws by their ids, in one table after the other. Asked for them in the view of all
-- that is pending, SQLite read all of it: for each turn, also of those that withdraw nothing.
drop trigger holdfast_turned_insert;
create trigger holdfast_turned_insert instead of insert on holdfast_turned
begin
    select raise(abort, 'holdfast: the turn of an orchestration is not the next one of its instance')
     where not exists (select 1 from holdfast_instance i
                        where i.id = new.row ->> 'id' and i.execution = new.row ->> 'execution'
                          and i.turn = (new.row ->> 'turn') - 1 and i.state in ('running', 'suspended'));
    update holdfast_instance
       set state = case state when 'suspended' then state else 'paused' end, trouble = new.row ->> 'trouble'
     where id = new.row ->> 'id' and new.row ->> 'body' is null;
    insert into holdfast_journal (id, execution, turn, part, body)
    select new.row ->> 'id', new.row ->> 'execution', new.row ->> 'turn', new.row ->> 'part', new.row ->> 'body'
     where new.row ->> 'body' is not null
     union all
    select new.row ->> 'id', (new.row ->> 'execution') + 1, 0, 0, new.row ->> 'begin' where new.row ->> 'begin' is not null;
    -- What runs for ever keeps the execution that has just ended, and none before.
    delete from holdfast_journal
     where new.row ->> 'begin' is not null and id = new.row ->> 'id' and execution < new.row ->> 'execution';
    update holdfast_instance
       set execution = execution + (new.row ->> 'begin' is not null),
           turn = case when new.row ->> 'begin' is null then new.row ->> 'turn' else 0 end,
           mark = new.row ->> 'mark', result = new.row ->> 'result', poison = new.row ->> 'poison',
           state = case when state = 'suspended' and new.row ->> 'state' = 'running' then state else new.row ->> 'state' end,
           trouble = case when state = 'suspended' and new.row ->> 'state' = 'running' then trouble
                          else new.row ->> 'trouble' end,
           status = coalesce(new.row ->> 'status', status),
           attributes = coalesce(new.row ->> 'attributes', attributes),
           entries = case when new.row ->> 'begin' is null then new.row ->> 'entries' else 0 end,
           size = case when new.row ->> 'begin' is null then new.row ->> 'size' else 0 end,
           turned_at = new.at, ended_at = case when new.row ->> 'state' <> 'running' then new.at end
     where id = new.row ->> 'id' and new.row ->> 'body' is not null;
    insert into holdfast_instance (id, queue, start, mark, reply, attributes, started_at)
    select s.value ->> 'id', s.value ->> 'queue', s.value ->> 'start', s.value ->> 'start', s.value ->> 'reply',
           s.value ->> 'attributes', new.at
      from json_each(coalesce(new.row -> 'starts', '[]')) s where true
        on conflict (id) do nothing;
    -- Timers that are not waited for any more and have not entered the stream.
    delete from holdfast_scheduled
     where queue = 'holdfast/timer' and id in (select t.value from json_each(coalesce(new.row -> 'timers', '[]')) t);
    -- Calls that are not waited for any more: who runs one is asked to stop, the others end here.
    update holdfast_lease set cancel = 1
     where seq in (select m.seq from holdfast_message m where m.stream is null
                      and m.id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c));
    insert into holdfast_history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject,
                                  why)
    select new.at, coalesce(m.due_at, m.created_at), m.id, m.status, m.attempts, m.failures, 'cancelled',
           coalesce(m.queue, ''), m.type, m.stream, m.subject, 'withdrawn by its orchestration'
      from json_each(coalesce(new.row -> 'calls', '[]')) c cross join holdfast_message m on m.id = c.value
     where m.stream is null and not exists (select 1 from holdfast_lease l where l.seq = m.seq)
     union all
    select new.at, coalesce(m.due_at, m.created_at), m.id, m.status, 0, 0, 'cancelled', m.queue, m.type, m.stream, m.subject,
           'withdrawn by its orchestration'
      from json_each(coalesce(new.row -> 'calls', '[]')) c cross join holdfast_scheduled m on m.id = c.value
     where m.stream is null;
    delete from holdfast_message
     where stream is null and id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c)
       and not exists (select 1 from holdfast_lease l where l.seq = holdfast_message.seq);
    delete from holdfast_scheduled
     where stream is null and id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c);
end;
