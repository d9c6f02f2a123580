-- Instances can be paused (the engine cannot go on with them), suspended (an operator holds them) and terminated.
-- SQLite cannot change a check, so the table is made anew (about the pragma: 0007).
drop view holdfast_turned;
drop index holdfast_instance_open;
pragma legacy_alter_table = on;
alter table holdfast_instance rename to holdfast_instance_before;
pragma legacy_alter_table = off;
create table holdfast_instance (
    id         text primary key,             -- the stream of its messages
    queue      text not null,                -- name@version
    start      text not null,                -- the message that starts it: another start with this id is refused
    execution  integer not null default 0,   -- rises with continue-as-new
    turn       integer not null default 0,   -- the last turn that is stored, of this execution
    mark       text not null,                -- of the writer of that turn: whoever has another one in memory is stale
    state      text not null default 'running' check (state in (
               'running', 'paused', 'suspended', 'completed', 'failed', 'cancelled', 'terminated')),
    reply      text,                         -- who waits for its end: queue, instance, execution, number, as JSON
    result     text,                         -- JSON: of the function, or the failure
    status     text,                         -- JSON: what the code says about itself
    trouble    text,                         -- why the next turn cannot be stored; cleared by the next that is
    entries    integer not null default 0,   -- of the journal of this execution
    size       integer not null default 0,   -- its bytes
    started_at integer not null,
    turned_at  integer,
    ended_at   integer,
    poison     text                          -- the dead letter that ended it: redriven, it opens it again
) without rowid;
insert into holdfast_instance (id, queue, start, execution, turn, mark, state, reply, result, status, trouble, entries,
                               size, started_at, turned_at, ended_at)
select id, queue, start, execution, turn, mark, state, reply, result, status, trouble, entries, size, started_at,
       turned_at, ended_at
  from holdfast_instance_before;
drop table holdfast_instance_before;
create index holdfast_instance_open on holdfast_instance (queue, id) where ended_at is null;

-- A delta is one statement: what a turn leaves behind goes into this view, as JSON, and its trigger does the rest.
-- A row without a body stores no turn: it pauses the instance where it stands. One that an operator has suspended stays so.
create view holdfast_turned as select null as row, null as at;
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
    update holdfast_instance
       set execution = execution + (new.row ->> 'begin' is not null),
           turn = case when new.row ->> 'begin' is null then new.row ->> 'turn' else 0 end,
           mark = new.row ->> 'mark', result = new.row ->> 'result', poison = new.row ->> 'poison',
           state = case when state = 'suspended' and new.row ->> 'state' = 'running' then state else new.row ->> 'state' end,
           status = coalesce(new.row ->> 'status', status), trouble = new.row ->> 'trouble',
           entries = case when new.row ->> 'begin' is null then new.row ->> 'entries' else 0 end,
           size = case when new.row ->> 'begin' is null then new.row ->> 'size' else 0 end,
           turned_at = new.at, ended_at = case when new.row ->> 'state' <> 'running' then new.at end
     where id = new.row ->> 'id' and new.row ->> 'body' is not null;
    insert into holdfast_instance (id, queue, start, mark, reply, started_at)
    select s.value ->> 'id', s.value ->> 'queue', s.value ->> 'start', s.value ->> 'start', s.value ->> 'reply', new.at
      from json_each(coalesce(new.row -> 'starts', '[]')) s where true
        on conflict (id) do nothing;
    -- Timers that are not waited for any more and have not entered the stream.
    delete from holdfast_message
     where queue = 'holdfast/timer' and id in (select t.value from json_each(coalesce(new.row -> 'timers', '[]')) t);
end;
