-- Breakers and rates, shared by all processes. A row is small and seldom written: never for a call that went well.

create table holdfast.breaker (
    name        text collate "C" primary key,
    version     bigint not null,         -- rises with every write: whoever read another one writes nothing
    era         bigint not null,         -- rises with every change of state: results of earlier calls do not count
    state       text collate "C" not null check (state in ('closed', 'open', 'half_open')),
    forced      boolean not null,        -- by an operator
    calls       text collate "C" not null,   -- the last ones, oldest first: . went well, x failed
    trials_left integer not null,
    successes   integer not null,        -- of trials
    opened_at   timestamptz,
    until       timestamptz,             -- open: of the cooldown; half open: of the patience with trials
    changed_at  timestamptz not null,    -- of the state
    why         text
) with (fillfactor = 50);

create table holdfast.rate (
    name    text collate "C" primary key,
    tokens  double precision not null,
    at      timestamptz not null,
    granted integer not null             -- by the last take: what the statement answers
) with (fillfactor = 50);
