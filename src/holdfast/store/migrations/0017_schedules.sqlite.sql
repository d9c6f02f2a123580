-- Schedules: what recurs, one row each, when a tick must look at it next; what was left out; whose zone data is known.
create table holdfast_schedule (
    name        text primary key,
    incarnation text not null,           -- ids of occurrences are made of this and their key
    origin      text not null check (origin in ('code', 'call')),
    digest      text,                    -- of the definition, if it is in code
    rule        text not null,           -- canonical, with its zone
    type        text not null,
    body        text not null,           -- sealed with the incarnation as its id, if there are keys
    headers     text,
    stream      text,
    subject     text,
    queue       text,
    misfire     text not null check (misfire in ('all', 'latest', 'skip')),
    overlap     text not null check (overlap in ('allow', 'queue', 'skip', 'replace')),
    cap         integer,                 -- null: all
    version     integer not null default 0,
    max_late    real,                  -- seconds
    grace       real not null,
    zones       text,        -- the zone data by which next_at was computed; null: it needs none
    next_key    text,        -- the occurrence that it waits for; null: there is none any more
    next_at     integer,             -- when a tick looks at it; null: paused, over, or failed
    last_key    text,        -- the last that was fired or left out: the next must be greater
    last_at     integer,
    last_id     text,
    fired       integer not null default 0,
    left_out    integer not null default 0,
    paused_at   integer,
    paused_why  text,
    error       text,                    -- why it does not fire any more
    declared_at integer,             -- when a process that has it in its code was last seen
    created_at  integer not null,
    changed_at  integer not null
);
create index holdfast_schedule_next on holdfast_schedule (next_at, name) where next_at is not null;
create index holdfast_schedule_zones on holdfast_schedule (zones) where zones is not null and next_at is not null;
create index holdfast_schedule_code on holdfast_schedule (name) where origin = 'code';
create index holdfast_schedule_odd on holdfast_schedule (name) where paused_at is not null or error is not null;

-- What was left out, as ranges.
create table holdfast_schedule_note (
    number    integer primary key,
    name      text not null,
    noted_at  integer not null,
    first_key text not null,
    last_key  text not null,
    count     integer not null,
    why       text not null
);
create index holdfast_schedule_note_name on holdfast_schedule_note (name, number);
create index holdfast_schedule_note_at on holdfast_schedule_note (noted_at);

-- Which versions of the zone data processes have, and when one that has it was last seen.
create table holdfast_zone_data (
    version text primary key,
    seen_at integer not null
);
