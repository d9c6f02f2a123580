-- Dead letters: a fingerprint of the error, those that are held, and every death that a message has died.

alter table holdfast.dead
    add column fingerprint text collate "C",
    add column held_at     timestamptz,       -- by an operator: it is neither redriven by a filter nor archived
    add column held_why    text,
    add column stored_at   timestamptz;       -- when it was imported or restored; null: it died here
create index dead_fingerprint on holdfast.dead (fingerprint, died_at);
create index dead_age on holdfast.dead ((coalesce(stored_at, died_at)));

alter table holdfast.history add column why text;    -- what an operator said, or where it was archived

create table holdfast.death (
    id          uuid not null,
    queue       text collate "C" not null,
    died_at     timestamptz not null,
    type        text collate "C" not null,
    reason      smallint not null,
    last_reason smallint,
    fingerprint text collate "C",
    worker      text,
    error       text,
    body        text,                    -- as it was when it died, if it was edited afterwards
    primary key (id, queue, died_at)
);
create index death_died on holdfast.death (died_at);

insert into holdfast.death (id, queue, died_at, type, reason, last_reason, worker, error)
select id, queue, died_at, type, reason, last_reason, worker, errors -> -1 ->> 'text' from holdfast.dead;

-- The body of this function comes with the others; the trigger only needs its name.
create function holdfast.record_death() returns trigger language plpgsql as 'begin return null; end';
create trigger dead_record after insert or update of died_at on holdfast.dead
    for each row execute function holdfast.record_death();
