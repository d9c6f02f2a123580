-- Orchestrations: one row for each instance, which fences its turns, and its journal. Texts may be sealed.
create table holdfast_instance (
    id         text primary key,             -- the stream of its messages
    queue      text not null,                -- name@version
    start      text not null,                -- the message that starts it: another start with this id is refused
    execution  integer not null default 0,   -- rises with continue-as-new
    turn       integer not null default 0,   -- the last turn that is stored, of this execution
    mark       text not null,                -- of the writer of that turn: whoever has another one in memory is stale
    state      text not null default 'running' check (state in ('running', 'completed', 'failed', 'cancelled')),
    reply      text,                         -- who waits for its end: queue, instance, execution, number, as JSON
    result     text,                         -- JSON: of the function, or the failure
    status     text,                         -- JSON: what the code says about itself
    trouble    text,                         -- why the next turn cannot be stored; cleared by the next that is
    entries    integer not null default 0,   -- of the journal of this execution
    size       integer not null default 0,   -- its bytes
    started_at integer not null,
    turned_at  integer,
    ended_at   integer
) without rowid;
create index holdfast_instance_open on holdfast_instance (queue, id) where ended_at is null;

create table holdfast_journal (
    id        text not null,
    execution integer not null,
    turn      integer not null,
    part      integer not null,
    body      text not null,
    primary key (id, execution, turn, part)
) without rowid;

-- A delta is one statement: what a turn leaves behind goes into this view, as JSON, and its trigger does the rest.
create view holdfast_turned as select null as row, null as at;
create trigger holdfast_turned_insert instead of insert on holdfast_turned
begin
    select raise(abort, 'holdfast: the turn of an orchestration is not the next one of its instance')
     where not exists (select 1 from holdfast_instance i
                        where i.id = new.row ->> 'id' and i.execution = new.row ->> 'execution'
                          and i.turn = (new.row ->> 'turn') - 1 and i.state = 'running');
    insert into holdfast_journal (id, execution, turn, part, body)
    select new.row ->> 'id', new.row ->> 'execution', new.row ->> 'turn', new.row ->> 'part', new.row ->> 'body'
     union all
    select new.row ->> 'id', (new.row ->> 'execution') + 1, 0, 0, new.row ->> 'begin' where new.row ->> 'begin' is not null;
    update holdfast_instance
       set execution = execution + (new.row ->> 'begin' is not null),
           turn = case when new.row ->> 'begin' is null then new.row ->> 'turn' else 0 end,
           mark = new.row ->> 'mark', state = new.row ->> 'state', result = new.row ->> 'result',
           status = coalesce(new.row ->> 'status', status), trouble = null,
           entries = case when new.row ->> 'begin' is null then new.row ->> 'entries' else 0 end,
           size = case when new.row ->> 'begin' is null then new.row ->> 'size' else 0 end,
           turned_at = new.at, ended_at = case when new.row ->> 'state' <> 'running' then new.at end
     where id = new.row ->> 'id';
    insert into holdfast_instance (id, queue, start, mark, reply, started_at)
    select s.value ->> 'id', s.value ->> 'queue', s.value ->> 'start', s.value ->> 'start', s.value ->> 'reply', new.at
      from json_each(new.row -> 'starts') s where true
        on conflict (id) do nothing;
    -- Timers that are not waited for any more and have not entered the stream.
    delete from holdfast_message
     where queue = 'holdfast/timer' and id in (select t.value from json_each(new.row -> 'timers') t);
end;
