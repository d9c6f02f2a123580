-- Destinations and inboxes: what is known of each, and how each worker's connection to its broker stands.
create table holdfast_endpoint (
    queue     text not null primary key, -- of a destination its queue; of an inbox the queue of its dead letters
    kind      text not null check (kind in ('destination', 'inbox')),
    transport text not null,      -- rabbitmq, memory
    address   text not null,                  -- exchange and routing key, or the broker's queue; never a URL
    last_at   integer,                    -- when a broker last confirmed a message, or one was last stored
    seen_at   integer not null            -- when a worker last had it
) without rowid;

create table holdfast_connection (
    queue   text not null,
    worker  integer not null,
    state   text not null check (state in ('open', 'broken', 'held')),
    since   integer not null,
    why     text,                             -- of what is not open
    tries   integer not null,                 -- to connect, since it broke
    last_at integer,
    seen_at integer not null,
    primary key (queue, worker)
) without rowid;

-- Who sent a message that came through an inbox, and its id there (U+001F, source, U+001F, id): its dedupe key, kept with
-- the line of history. Null for all others.
alter table holdfast_history add column origin text;
