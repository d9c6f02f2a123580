-- What operators did, and alerts. Neither is touched by a message that goes its way.

create table holdfast.audit (
    number bigint generated always as identity primary key,
    at     timestamptz not null,
    who    text not null,
    action text collate "C" not null,        -- messages.park, streams.halt, ...
    queue  text collate "C",
    target text collate "C",                 -- a message's id, a stream, a breaker; null: what matches the filter
    count  integer not null,                 -- how many were changed
    was    text,                             -- JSON
    became text,                             -- JSON
    why    text,
    filter text,                             -- JSON
    ids    text                              -- JSON: the first ones of many
);
create index audit_at on holdfast.audit (at);

-- An episode of an alert that is not over.
create table holdfast.alert (
    name       text collate "C" not null,
    subject    text collate "C" not null,    -- a queue, a breaker; '' for the whole
    version    bigint not null,              -- rises with every write: whoever read another one writes nothing
    episode    bigint not null,              -- the number of the news that it began
    since      timestamptz not null,
    calm_since timestamptz,                  -- below its threshold, but not for long enough
    value      double precision not null,
    peak       double precision not null,
    primary key (name, subject)
);

-- That an episode began or is over: stored with the decision, told afterwards, at least once.
create table holdfast.alert_news (
    number    bigint generated always as identity primary key,
    name      text collate "C" not null,
    subject   text collate "C" not null,
    what      text collate "C" not null check (what in ('raised', 'over')),
    episode   bigint,                        -- null: its own number
    at        timestamptz not null,
    since     timestamptz not null,
    value     double precision not null,
    threshold double precision not null,
    text      text not null,
    details   text not null,                 -- JSON
    tries     integer not null default 0,
    try_at    timestamptz not null,
    told      text not null default '[]',    -- JSON: the sinks that have it
    ended_at  timestamptz,                   -- told to all, or given up
    error     text
);
create index alert_news_open on holdfast.alert_news (try_at) where ended_at is null;

-- What is done for all processes by one of them, at most so often.
create table holdfast.turn (
    name    text collate "C" primary key,
    next_at timestamptz not null
);
