-- What workers had with their database: a worker that waited, met a statement timeout or was started again says so.
alter table holdfast_worker add column trouble text;
alter table holdfast_worker add column trouble_at integer;
alter table holdfast_worker add column timeouts integer not null default 0;
alter table holdfast_worker add column restarts integer not null default 0;
