-- Slots: who holds how many, one row for each limit. They stood in the breakers' table, as JSON in a column for calls.

create table holdfast_slot (
    name    text primary key,                -- of a limit: queue/NAME, or what app.slots(...) was given
    version integer not null,                -- rises with every write: whoever read another one writes nothing
    holders text not null                    -- JSON: [worker, slots that it holds, its lease in seconds, its queues], ...
) without rowid;

insert into holdfast_slot (name, version, holders)
select substr(name, length('holdfast/slots/') + 1), version, case when calls = '' then '[]' else calls end
  from holdfast_breaker where name like 'holdfast/slots/%';

delete from holdfast_breaker where name like 'holdfast/slots/%';

-- Every exchange asks which queues are paused, and of a family's there may be thousands.
create index holdfast_queue_paused on holdfast_queue (name) where paused_at is not null;
