-- What operators did, and alerts. Neither is touched by a message that goes its way.

create table holdfast_audit (
    number integer primary key autoincrement,
    at     integer not null,
    who    text not null,
    action text not null,                    -- messages.park, streams.halt, ...
    queue  text,
    target text,                             -- a message's id, a stream, a breaker; null: what matches the filter
    count  integer not null,                 -- how many were changed
    was    text,                             -- JSON
    became text,                             -- JSON
    why    text,
    filter text,                             -- JSON
    ids    text                              -- JSON: the first ones of many
);
create index holdfast_audit_at on holdfast_audit (at);

-- An episode of an alert that is not over.
create table holdfast_alert (
    name       text not null,
    subject    text not null,                -- a queue, a breaker; '' for the whole
    version    integer not null,             -- rises with every write: whoever read another one writes nothing
    episode    integer not null,             -- the number of the news that it began
    since      integer not null,
    calm_since integer,                      -- below its threshold, but not for long enough
    value      real not null,
    peak       real not null,
    primary key (name, subject)
) without rowid;

-- That an episode began or is over: stored with the decision, told afterwards, at least once.
create table holdfast_alert_news (
    number    integer primary key autoincrement,
    name      text not null,
    subject   text not null,
    what      text not null check (what in ('raised', 'over')),
    episode   integer,                       -- null: its own number
    at        integer not null,
    since     integer not null,
    value     real not null,
    threshold real not null,
    text      text not null,
    details   text not null,                 -- JSON
    tries     integer not null default 0,
    try_at    integer not null,
    told      text not null default '[]',    -- JSON: the sinks that have it
    ended_at  integer,                       -- told to all, or given up
    error     text
);
create index holdfast_alert_news_open on holdfast_alert_news (try_at) where ended_at is null;

-- What is done for all processes by one of them, at most so often.
create table holdfast_turn (
    name    text primary key,
    next_at integer not null
) without rowid;
