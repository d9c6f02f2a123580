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
-- Plain SQL: an INSERT that does not say otherwise is a producer's, whether it names a queue or not, and is checked and
-- routed by `receive`. The engine's own inserts say `plain = null`: they were checked before, and pay nothing for it.
alter table holdfast.message add column plain boolean;
alter table holdfast.message alter column plain set default true;   -- of new rows only: nothing is written again
drop trigger message_receive on holdfast.message;
create trigger message_receive before insert on holdfast.message
    for each row when (new.queue is null or new.plain) execute function holdfast.receive();
