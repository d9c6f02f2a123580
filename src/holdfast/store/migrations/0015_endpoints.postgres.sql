-- Destinations and inboxes: what is known of each, and how each worker's connection to its broker stands.
create table holdfast.endpoint (
    queue     text collate "C" primary key,   -- of a destination its queue; of an inbox the queue of its dead letters
    kind      text collate "C" not null check (kind in ('destination', 'inbox')),
    transport text collate "C" not null,      -- rabbitmq, memory
    address   text not null,                  -- exchange and routing key, or the broker's queue; never a URL
    last_at   timestamptz,                    -- when a broker last confirmed a message, or one was last stored
    seen_at   timestamptz not null            -- when a worker last had it
);

create table holdfast.connection (
    queue   text collate "C" not null,
    worker  bigint not null,
    state   text collate "C" not null check (state in ('open', 'broken', 'held')),
    since   timestamptz not null,
    why     text,                             -- of what is not open
    tries   integer not null,                 -- to connect, since it broke
    last_at timestamptz,
    seen_at timestamptz not null,
    primary key (queue, worker)
) with (fillfactor = 50);

-- Who sent a message that came through an inbox, and its id there (U+001F, source, U+001F, id): its dedupe key, kept with
-- the line of history. Null for all others.
alter table holdfast.history add column origin text;
