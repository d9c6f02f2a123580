-- What workers had with their database: a worker that waited, met a statement timeout or was started again says so.
alter table holdfast.worker
    add column trouble    text,
    add column trouble_at timestamptz,
    add column timeouts   int not null default 0,
    add column restarts   int not null default 0;
