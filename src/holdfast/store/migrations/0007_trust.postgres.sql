-- What workers had with their database: a worker that waited, met a statement timeout or was started again says so.
alter table holdfast.worker
    add column trouble    text,
    add column trouble_at timestamptz,
    add column timeouts   int not null default 0,
    add column restarts   int not null default 0;
-- Which functions are installed: their number, the lowest number whose callers still work with them, and the signatures
-- of those that migrations made, so that the next migration touches no others.
alter table holdfast.schema_version
    add column number          integer not null default 0,
    add column compatible_from integer not null default 0,
    add column made            text[] not null default '{}';
