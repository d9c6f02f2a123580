-- Handlers that have another name now: the queue of the old name is not subscribed any more, and what is left in it goes
-- to the queue of the new name when no live worker takes from it.
create table holdfast_rename (
    old        text not null primary key,    -- a queue
    new        text not null,                -- the queue of the handler that declared renamed_from
    created_at integer not null
) without rowid;
