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
-- Own ids: dead letters that have one id in one queue are told apart by their number, and so are deaths at one instant.
alter table holdfast.dead drop constraint dead_pkey, add primary key (id, queue, seq);
alter table holdfast.death add column seq bigint not null default 0;    -- 0: of one that died before there were numbers
update holdfast.death x set seq = d.seq from holdfast.dead d
 where d.id = x.id and d.queue = x.queue and d.died_at = x.died_at;
alter table holdfast.death drop constraint death_pkey, add primary key (id, queue, died_at, seq);
