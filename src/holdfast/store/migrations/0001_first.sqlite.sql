-- The first schema. Times are microseconds since 1970, UTC. Writers are serial here, so a message gets its place in
-- the order of its stream when it is stored: the place is its seq.

create table holdfast_message (
    seq          integer primary key autoincrement,
    position     integer,                -- place in the order of its stream; null: out of the order, or not placed yet
    claimable_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
    created_at   integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
    due_at       integer,
    deadline     integer,
    id           text not null default (lower(
                     hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-a' ||
                     substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    xact         integer,                -- set while it waits for its place
    status       integer not null default 1,
    epoch        integer not null default 0,
    attempts     integer not null default 0,
    failures     integer not null default 0,
    vanished     integer not null default 0,
    refunds      integer not null default 0,
    redrives     integer not null default 0,
    reason       integer,
    head         integer not null default 1,
    queue        text,                   -- null: unrouted, nobody has subscribed yet
    type         text not null,
    stream       text,
    subject      text,
    dedupe       text,
    target       text,
    errors       text,
    headers      text,
    body         text not null
);
create unique index holdfast_message_id on holdfast_message (id, queue);
create index holdfast_message_claim on holdfast_message (queue, claimable_at, seq) where head and vanished = 0;
create index holdfast_message_suspect on holdfast_message (queue, claimable_at, seq) where head and vanished > 0;
create unique index holdfast_message_head on holdfast_message (queue, stream) where head and position is not null;
create unique index holdfast_message_stream on holdfast_message (queue, stream, position) where position is not null;
create index holdfast_message_unplaced on holdfast_message (xact) where xact is not null;
create index holdfast_message_unrouted on holdfast_message (type, seq) where queue is null;

create table holdfast_lease (
    seq     integer primary key,
    until   integer not null,
    worker  integer not null,
    run_end integer,
    epoch   integer not null,
    cancel  integer not null default 0
);

create table holdfast_stream (
    queue     text not null,
    name      text not null,
    open      integer not null,
    halted_by text,
    halted_at integer,
    primary key (queue, name)
) without rowid;

create table holdfast_queue (
    name       text primary key,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
    ordered    integer not null default 1,      -- keeps the order of streams
    paused_at  integer,
    paused_why text
) without rowid;

create table holdfast_subscription (
    pattern    text not null,
    queue      text not null,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
    primary key (pattern, queue)
) without rowid;

create table holdfast_dead (
    id          text not null,
    queue       text not null,
    seq         integer not null,
    type        text not null,
    stream      text,
    position    integer,
    subject     text,
    dedupe      text,
    status      integer not null,
    epoch       integer not null,
    attempts    integer not null,
    failures    integer not null,
    vanished    integer not null,
    refunds     integer not null,
    redrives    integer not null,
    reason      integer not null,
    last_reason integer,
    worker      text,
    created_at  integer not null,
    due_at      integer,
    deadline    integer,
    died_at     integer not null,
    errors      text,
    headers     text,
    body        text not null,
    primary key (id, queue)
);
create index holdfast_dead_died on holdfast_dead (died_at);

create table holdfast_history (
    ended_at   integer not null,
    started_at integer,
    due_at     integer not null,
    id         text not null,
    status     integer not null,
    attempts   integer not null,
    failures   integer not null,
    outcome    text not null,
    queue      text not null,
    type       text not null,
    stream     text,
    subject    text
);
create index holdfast_history_ended on holdfast_history (ended_at);
create index holdfast_history_id on holdfast_history (id);

create table holdfast_dedupe (
    scope    text not null,
    key      text not null,
    id       text not null,
    ended_at integer,
    primary key (scope, key)
) without rowid;
create index holdfast_dedupe_ended on holdfast_dedupe (ended_at) where ended_at is not null;

create table holdfast_event_stream (
    name    text primary key,
    version integer not null
) without rowid;

create table holdfast_event (
    stream     text not null,
    version    integer not null,
    id         text not null,
    type       text not null,
    subject    text,
    created_at integer not null,
    headers    text,
    body       text not null,
    primary key (stream, version)
);

create table holdfast_worker (
    id         integer primary key autoincrement,
    name       text not null,
    started_at integer not null,
    seen_at    integer not null,
    asleep     integer not null default 0,
    stopping   integer not null default 0,
    queues     text not null default '[]'
);

-- A plain INSERT of (type, body [, stream, due_at, ...]) is a publish: it is routed and gets its place here.
create trigger holdfast_message_receive after insert on holdfast_message when new.queue is null and new.xact is null
begin
    select raise(abort, 'holdfast: the body of a message must be JSON') where not json_valid(new.body);
    update holdfast_message
       set queue = case
               when stream is not null and due_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer)
               then 'holdfast/timer'
               else (select min(s.queue) from holdfast_subscription s where s.pattern = new.type
                      or (s.pattern like '%*' and substr(new.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))) end,
           claimable_at = max(claimable_at, coalesce(due_at, 0))
     where seq = new.seq;
    update holdfast_message set head = 0, xact = case when queue is not null then 1 end
     where seq = new.seq and stream is not null and queue is not 'holdfast/timer'
       and not exists (select 1 from holdfast_queue q where q.name = holdfast_message.queue and not q.ordered);
    insert into holdfast_message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, type, stream,
                                  subject, dedupe, headers, body)
    select distinct m.claimable_at, m.created_at, m.due_at, m.deadline, m.id,
           case when m.stream is not null and coalesce(q.ordered, 1) then 1 end, m.status,
           m.stream is null or not coalesce(q.ordered, 1), s.queue, m.type, m.stream, m.subject, m.dedupe, m.headers, m.body
      from holdfast_message m join holdfast_subscription s
        on s.pattern = m.type
        or (s.pattern like '%*' and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
      left join holdfast_queue q on q.name = s.queue
     where m.seq = new.seq and s.queue <> m.queue and m.queue is not 'holdfast/timer';
    insert into holdfast_stream (queue, name, open)
    select m.queue, m.stream, count(*) from holdfast_message m where m.xact = 1 group by m.queue, m.stream
        on conflict (queue, name) do update set open = open + excluded.open;
    update holdfast_message
       set position = seq, xact = null,
           head = exists (select 1 from holdfast_stream s where s.queue = holdfast_message.queue
                             and s.name = holdfast_message.stream and s.open = 1 and s.halted_by is null)
     where xact = 1;
end;
