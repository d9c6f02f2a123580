-- Breakers and rates, shared by all processes. A row is small and seldom written: never for a call that went well.

create table holdfast_breaker (
    name        text primary key,
    version     integer not null,        -- rises with every write: whoever read another one writes nothing
    era         integer not null,        -- rises with every change of state: results of earlier calls do not count
    state       text not null check (state in ('closed', 'open', 'half_open')),
    forced      integer not null,        -- by an operator
    calls       text not null,           -- the last ones, oldest first: . went well, x failed
    trials_left integer not null,
    successes   integer not null,        -- of trials
    opened_at   integer,
    until       integer,                 -- open: of the cooldown; half open: of the patience with trials
    changed_at  integer not null,        -- of the state
    why         text
) without rowid;

create table holdfast_rate (
    name    text primary key,
    tokens  real not null,
    at      integer not null,
    granted integer not null             -- by the last take: what the statement answers
) without rowid;
