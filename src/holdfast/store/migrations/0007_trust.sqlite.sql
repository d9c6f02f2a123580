-- What workers had with their database: a worker that waited, met a statement timeout or was started again says so.
alter table holdfast_worker add column trouble text;
alter table holdfast_worker add column trouble_at integer;
alter table holdfast_worker add column timeouts integer not null default 0;
alter table holdfast_worker add column restarts integer not null default 0;
-- Plain SQL: an INSERT that does not say otherwise is a producer's, whether it names a queue or not, and is checked and
-- routed by the triggers below. The engine's own inserts say `plain = null`: they were checked before, and pay nothing.
-- First a number that no message can follow: it made every later INSERT fail, as if the disk were full.
delete from holdfast_lease where seq >= 4611686018427387904;
update holdfast_message
   set seq = (select coalesce(max(m.seq), 0) from holdfast_message m
                where m.seq < 4611686018427387904 and holdfast_message.seq > 0)   -- looked up anew for each
           + (select count(*) from holdfast_message m where m.seq between 4611686018427387904 and holdfast_message.seq)
 where seq >= 4611686018427387904;
update holdfast_message set position = seq where position >= 4611686018427387904;
update sqlite_sequence set seq = max((select coalesce(max(m.seq), 0) from holdfast_message m),
                                     (select coalesce(max(max(d.seq, coalesce(d.position, 0))), 0) from holdfast_dead d
                                       where max(d.seq, coalesce(d.position, 0)) < 4611686018427387904))
 where name = 'holdfast_message' and seq >= 4611686018427387904;
alter table holdfast_message add column plain integer default 1
    constraint "holdfast: leave out seq, a column of the engine" check (seq < 4611686018427387904);

drop trigger holdfast_message_check;
create trigger holdfast_message_check before insert on holdfast_message when new.plain is not null
begin
    select raise(abort, 'holdfast: the id of a message must be a UUID, as text')
     where typeof(new.id) <> 'text' or new.id not glob '????????-????-????-????-????????????'
        or length(replace(new.id, '-', '')) <> 32 or replace(new.id, '-', '') glob '*[^0-9a-fA-F]*';
    select raise(abort, 'holdfast: times of a message must be microseconds since 1970, as integers, in the years 1 to 9999')
     where typeof(new.claimable_at) <> 'integer' or typeof(new.created_at) <> 'integer'
        or typeof(coalesce(new.due_at, 0)) <> 'integer' or typeof(coalesce(new.deadline, 0)) <> 'integer'
        or max(new.claimable_at, new.created_at, coalesce(new.due_at, 0), coalesce(new.deadline, 0)) >= 253402300800000000
        or min(new.claimable_at, new.created_at, coalesce(new.due_at, 0), coalesce(new.deadline, 0)) < -62135596800000000;
    select raise(abort, 'holdfast: the engine''s own columns of a message cannot be set: leave out status, epoch, attempts, failures, vanished, refunds, redrives, reason, errors, dedupe, target, xact, head and position')
     where new.epoch is not 0 or new.attempts is not 0 or new.failures is not 0 or new.vanished is not 0
        or new.refunds is not 0 or new.redrives is not 0 or new.reason is not null or new.errors is not null
        or new.position is not null
        -- A release before this one, still at work, says these of its own messages; they are checked as far as can be.
        or (new.queue is null and (new.dedupe is not null or new.target is not null) and not exists (
            select 1 from holdfast_dedupe d where d.scope = new.type and d.key = new.dedupe and d.id = new.id))
        or (new.status is not 1 and not (new.status is 3 and new.stream is not null))
        or (new.xact is not null and not (new.xact is 2 and new.stream is not null and new.queue is not null and new.head is 0))
        or (new.xact is null and new.head is not 1 and not (new.queue is null and new.stream is not null and new.head is 0));
    select raise(abort, 'holdfast: type, body, stream, subject, headers and queue of a message must be text')
     where typeof(new.type) <> 'text' or typeof(new.body) <> 'text' or typeof(coalesce(new.stream, '')) <> 'text'
        or typeof(coalesce(new.subject, '')) <> 'text' or typeof(coalesce(new.headers, '')) <> 'text'
        or typeof(coalesce(new.queue, '')) <> 'text';
    select raise(abort, 'holdfast: type, stream and subject of a message must have 1 to 300 characters (the type 200), no control characters and no spaces around them, and the type no *')
      from (select new.type as name, 200 as longest union all select new.stream, 300 union all select new.subject, 300
             union all select new.queue, 200) n
     where n.name is not null and (length(n.name) not between 1 and n.longest or n.name <> trim(n.name)
        or instr(cast(n.name as blob), x'00') > 0
        or n.name glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || char(8232) || '-' || char(8238)
                     || char(8294) || '-' || char(8297) || char(65279) || ']*')
        or instr(new.type, '*') > 0;
    select raise(abort, 'holdfast: the queue of a message must be that of a handler: leave it out, and every subscriber gets the message')
     where new.queue like 'holdfast/%' and not (new.queue = 'holdfast/timer' and new.stream is not null and new.due_at is not null);
    select raise(abort, 'holdfast: a message must not have more than 1048576 bytes of body and 16384 of headers')
     where length(cast(new.body as blob)) > 1048576 or length(cast(new.headers as blob)) > 16384;
    select raise(abort, 'holdfast: the body of a message must be JSON') where not json_valid(new.body);
    select raise(abort, 'holdfast: the headers of a message must be a JSON object')
     where new.headers is not null and not (json_valid(new.headers) and json_type(new.headers) = 'object');
    select raise(abort, 'holdfast: the values of headers must be texts, numbers or booleans')
      from json_each(new.headers) h where h.type not in ('text', 'integer', 'real', 'true', 'false');
end;

drop trigger holdfast_message_receive;
create trigger holdfast_message_receive after insert on holdfast_message
    when new.xact is null and (new.queue is null or new.plain)
begin
    select raise(abort, 'holdfast: the engine''s own columns of a message cannot be set: leave out seq')
      from (select coalesce((select s.seq from sqlite_sequence s where s.name = 'holdfast_message'), 0) as last) s
     where new.plain and (new.seq <= s.last or new.seq > s.last + 1000000000);
    -- For the one queue that it names, or for the first of its subscribers.
    update holdfast_message
       set queue = case
               when stream is not null and due_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer)
               then 'holdfast/timer'
               else coalesce(queue, (select min(s.queue) from holdfast_subscription s where s.pattern = new.type
                      or (s.pattern like '%*' and substr(new.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))) end,
           target = case when queue is not 'holdfast/timer' and stream is not null
                          and due_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer) then queue else target end,
           claimable_at = max(claimable_at, coalesce(due_at, 0)), plain = null
     where seq = new.seq;
    update holdfast_message set head = 0, xact = case when queue is not null then 1 end
     where seq = new.seq and stream is not null and queue is not 'holdfast/timer'
       and not exists (select 1 from holdfast_queue q where q.name = holdfast_message.queue and not q.ordered);
    insert into holdfast_message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, plain, type,
                                  stream, subject, dedupe, headers, body)
    select distinct m.claimable_at, m.created_at, m.due_at, m.deadline, m.id,
           case when m.stream is not null and coalesce(q.ordered, 1) then 1 end, m.status,
           m.stream is null or not coalesce(q.ordered, 1), s.queue, null, m.type, m.stream, m.subject, m.dedupe, m.headers, m.body
      from holdfast_message m join holdfast_subscription s
        on s.pattern = m.type
        or (s.pattern like '%*' and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
      left join holdfast_queue q on q.name = s.queue
     where m.seq = new.seq and new.queue is null and s.queue <> m.queue and m.queue is not 'holdfast/timer';
    insert into holdfast_stream (queue, name, open)
    select m.queue, m.stream, count(*) from holdfast_message m where m.xact = 1 group by m.queue, m.stream
        on conflict (queue, name) do update set open = open + excluded.open;
    update holdfast_message
       set position = seq, xact = null,
           head = exists (select 1 from holdfast_stream s where s.queue = holdfast_message.queue
                             and s.name = holdfast_message.stream and s.open = 1 and s.halted_by is null)
     where xact = 1;
end;

-- A message as a dead letter can keep it, whatever somebody wrote into its row: SQLite keeps anything in any column.
create view holdfast_sound as
select seq, case when typeof(position) = 'integer' then position end as position,
       case when typeof(id) = 'text' and length(replace(id, '-', '')) = 32 and replace(id, '-', '') not glob '*[^0-9a-fA-F]*'
            then id else printf('00000000-0000-0000-0000-%012x', seq) end as id,
       cast(queue as text) as queue, cast(type as text) as type, cast(stream as text) as stream,
       cast(subject as text) as subject, cast(dedupe as text) as dedupe, cast(headers as text) as headers,
       cast(body as text) as body, errors,
       case when typeof(status) = 'integer' and status between 0 and 65535 then status else 1 end as status,
       case when typeof(epoch) = 'integer' and epoch between 0 and 2147483647 then epoch else 2147483646 end as epoch,
       case when typeof(attempts) = 'integer' and attempts between 0 and 2147483646 then attempts else 0 end as attempts,
       case when typeof(failures) = 'integer' and failures between 0 and 2147483646 then failures else 0 end as failures,
       case when typeof(vanished) = 'integer' and vanished between 0 and 2147483646 then vanished else 0 end as vanished,
       case when typeof(refunds) = 'integer' and refunds between 0 and 2147483646 then refunds else 0 end as refunds,
       case when typeof(redrives) = 'integer' and redrives between 0 and 2147483646 then redrives else 0 end as redrives,
       case when typeof(reason) = 'integer' and reason between 0 and 32767 then reason end as reason,
       case when typeof(created_at) = 'integer' then created_at else 0 end as created_at,
       case when typeof(due_at) = 'integer' then due_at end as due_at,
       case when typeof(deadline) = 'integer' then deadline end as deadline
  from holdfast_message;
-- Own ids: dead letters that have one id in one queue are told apart by their number, and so are deaths at one instant.
-- A key cannot be changed here: the tables are made anew, with their indexes and triggers. Without the pragma a rename
-- changes the names in views and triggers of others, too, which would then ask for a table that is gone.
pragma legacy_alter_table = on;
alter table holdfast_dead rename to holdfast_dead_before;
alter table holdfast_death rename to holdfast_death_before;
pragma legacy_alter_table = off;
create table holdfast_dead (
    id          text not null,
    queue       text not null,
    seq         integer not null,
    type        text not null,
    stream      text,
    position    integer,
    subject     text,
    dedupe      text,
    status      integer not null,
    epoch       integer not null,
    attempts    integer not null,
    failures    integer not null,
    vanished    integer not null,
    refunds     integer not null,
    redrives    integer not null,
    reason      integer not null,
    last_reason integer,
    worker      text,
    created_at  integer not null,
    due_at      integer,
    deadline    integer,
    died_at     integer not null,
    errors      text,
    headers     text,
    body        text not null,
    fingerprint text,
    held_at     integer,                 -- by an operator: neither redriven by a filter nor archived
    held_why    text,
    stored_at   integer,                 -- when it was imported or restored; null: it died here
    primary key (id, queue, seq)
);
insert into holdfast_dead
select id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts, failures, vanished, refunds,
       redrives, reason, last_reason, worker, created_at, due_at, deadline, died_at, errors, headers, body, fingerprint,
       held_at, held_why, stored_at
  from holdfast_dead_before;
create table holdfast_death (
    id          text not null,
    queue       text not null,
    died_at     integer not null,
    seq         integer not null,        -- 0: of one that died before there were numbers
    type        text not null,
    reason      integer not null,
    last_reason integer,
    fingerprint text,
    worker      text,
    error       text,
    body        text,                    -- as it was when it died, if it was edited afterwards
    primary key (id, queue, died_at, seq)
) without rowid;
insert into holdfast_death
select x.id, x.queue, x.died_at,
       coalesce((select d.seq from holdfast_dead_before d where d.id = x.id and d.queue = x.queue and d.died_at = x.died_at), 0),
       x.type, x.reason, x.last_reason, x.fingerprint, x.worker, x.error, x.body
  from holdfast_death_before x;
drop table holdfast_dead_before;
drop table holdfast_death_before;
create index holdfast_dead_died on holdfast_dead (died_at);
create index holdfast_dead_fingerprint on holdfast_dead (fingerprint, died_at);
create index holdfast_dead_age on holdfast_dead (coalesce(stored_at, died_at));
create index holdfast_death_died on holdfast_death (died_at);
-- Every way to die ends with a row of `dead`, so here is the one place that writes deaths down.
create trigger holdfast_dead_record after insert on holdfast_dead
begin
    insert into holdfast_death (id, queue, died_at, seq, type, reason, last_reason, fingerprint, worker, error)
    select new.id, new.queue, new.died_at, new.seq, new.type, new.reason, new.last_reason, new.fingerprint, new.worker,
           json_extract(new.errors, '$[#-1].text')
     where not exists (select 1 from holdfast_death d where d.id = new.id and d.queue = new.queue
                          and d.died_at = new.died_at and d.seq = new.seq);
end;
