-- Outages: times in which nobody worked while something was due, or in which many messages were late, with their
-- summary. `presence` keeps when a queue last had a worker, also when the rows of its workers are gone.

create table holdfast_presence (
    queue     text primary key,              -- as workers name what they serve: a queue, or a family of queues
    worked_at integer not null               -- when a worker of it was last there, of those that are gone
) without rowid;

create table holdfast_outage (
    number       integer primary key,
    cause        text not null check (cause in ('absent', 'late')),
    began_at     integer not null,
    noticed_at   integer not null,
    down_since   integer,                    -- the last moment at which somebody worked
    back_at      integer,                    -- when somebody worked again
    oldest_at    integer not null,           -- when the oldest message was due
    calm_since   integer,                    -- nothing is late any more, but not for long enough
    ended_at     integer,
    version      integer not null default 1, -- rises with every write: whoever read another one writes nothing
    handled      integer,                    -- the summary, written at the end
    died         integer,
    late_mean    real,                       -- seconds
    late_max     real,
    caught_up_at integer                     -- when the last of them ended
);
create unique index holdfast_outage_open on holdfast_outage (ended_at is null) where ended_at is null;
