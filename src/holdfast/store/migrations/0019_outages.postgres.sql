-- Outages: times in which nobody worked while something was due, or in which many messages were late, with their
-- summary. `presence` keeps when a queue last had a worker, also when the rows of its workers are gone.

create table holdfast.presence (
    queue     text collate "C" primary key,  -- as workers name what they serve: a queue, or a family of queues
    worked_at timestamptz not null           -- when a worker of it was last there, of those that are gone
);

create table holdfast.outage (
    number       bigint primary key,
    cause        text collate "C" not null check (cause in ('absent', 'late')),
    began_at     timestamptz not null,
    noticed_at   timestamptz not null,
    down_since   timestamptz,                -- the last moment at which somebody worked
    back_at      timestamptz,                -- when somebody worked again
    oldest_at    timestamptz not null,       -- when the oldest message was due
    calm_since   timestamptz,                -- nothing is late any more, but not for long enough
    ended_at     timestamptz,
    version      bigint not null default 1,  -- rises with every write: whoever read another one writes nothing
    handled      bigint,                     -- the summary, written at the end
    died         bigint,
    late_mean    double precision,           -- seconds
    late_max     double precision,
    caught_up_at timestamptz                 -- when the last of them ended
);
create unique index outage_open on holdfast.outage ((ended_at is null)) where ended_at is null;
