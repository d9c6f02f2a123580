-- Dead letters: a fingerprint of the error, those that are held, and every death that a message has died.

alter table holdfast_dead add column fingerprint text;
alter table holdfast_dead add column held_at integer;      -- by an operator: neither redriven by a filter nor archived
alter table holdfast_dead add column held_why text;
alter table holdfast_dead add column stored_at integer;    -- when it was imported or restored; null: it died here
create index holdfast_dead_fingerprint on holdfast_dead (fingerprint, died_at);
create index holdfast_dead_age on holdfast_dead (coalesce(stored_at, died_at));

alter table holdfast_history add column why text;          -- what an operator said, or where it was archived

create table holdfast_death (
    id          text not null,
    queue       text not null,
    died_at     integer not null,
    type        text not null,
    reason      integer not null,
    last_reason integer,
    fingerprint text,
    worker      text,
    error       text,
    body        text,                    -- as it was when it died, if it was edited afterwards
    primary key (id, queue, died_at)
) without rowid;
create index holdfast_death_died on holdfast_death (died_at);

insert into holdfast_death (id, queue, died_at, type, reason, last_reason, worker, error)
select id, queue, died_at, type, reason, last_reason, worker, json_extract(errors, '$[#-1].text') from holdfast_dead;

-- Every way to die ends with a row of `dead`, so here is the one place that writes deaths down.
create trigger holdfast_dead_record after insert on holdfast_dead
begin
    insert into holdfast_death (id, queue, died_at, type, reason, last_reason, fingerprint, worker, error)
    select new.id, new.queue, new.died_at, new.type, new.reason, new.last_reason, new.fingerprint, new.worker,
           json_extract(new.errors, '$[#-1].text')
     where not exists (select 1 from holdfast_death d
                        where d.id = new.id and d.queue = new.queue and d.died_at = new.died_at);
end;
create trigger holdfast_dead_record_again after update of died_at on holdfast_dead
begin
    insert into holdfast_death (id, queue, died_at, type, reason, last_reason, fingerprint, worker, error)
    select new.id, new.queue, new.died_at, new.type, new.reason, new.last_reason, new.fingerprint, new.worker,
           json_extract(new.errors, '$[#-1].text')
     where not exists (select 1 from holdfast_death d
                        where d.id = new.id and d.queue = new.queue and d.died_at = new.died_at);
end;
