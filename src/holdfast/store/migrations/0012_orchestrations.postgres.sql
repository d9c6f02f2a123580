-- Orchestrations: one row for each instance, which fences its turns, and its journal. Texts may be sealed.
create table holdfast.instance (
    id         text collate "C" primary key,   -- the stream of its messages
    queue      text collate "C" not null,      -- name@version
    start      uuid not null,                  -- the message that starts it: another start with this id is refused
    execution  integer not null default 0,     -- rises with continue-as-new
    turn       integer not null default 0,     -- the last turn that is stored, of this execution
    mark       uuid not null,                  -- of the writer of that turn: whoever has another one in memory is stale
    state      text collate "C" not null default 'running'
               check (state in ('running', 'completed', 'failed', 'cancelled')),
    reply      text collate "C",               -- who waits for its end: queue, instance, execution, number, as JSON
    result     text,                           -- JSON: of the function, or the failure
    status     text,                           -- JSON: what the code says about itself
    trouble    text,                           -- why the next turn cannot be stored; cleared by the next that is
    entries    integer not null default 0,     -- of the journal of this execution
    size       bigint not null default 0,      -- its bytes
    started_at timestamptz not null,
    turned_at  timestamptz,
    ended_at   timestamptz
) with (fillfactor = 70);
create index instance_open on holdfast.instance (queue, id) where ended_at is null;

create table holdfast.journal (
    id        text collate "C" not null,
    execution integer not null,
    turn      integer not null,
    part      integer not null,
    body      text not null,
    primary key (id, execution, turn, part)
);
