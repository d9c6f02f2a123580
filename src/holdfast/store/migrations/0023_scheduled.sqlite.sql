-- What is due in more than a minute, and what enters a stream later, waits here and not in `message`: exchanges and status do
-- not read it. The tick brings it over when it is due. Numbers are drawn from the sequence of `message`, so a number means
-- one message, wherever it is.
create table holdfast_scheduled (
    seq          integer primary key,
    claimable_at integer not null,       -- when it is brought over; the greatest number: parked
    created_at   integer not null,
    due_at       integer,
    deadline     integer,
    id           text not null,
    status       integer not null default 1,
    epoch        integer not null default 0,
    queue        text not null,          -- holdfast/timer: whose it is, is decided when it is due
    type         text not null,
    stream       text,
    subject      text,
    dedupe       text,
    target       text,                   -- in holdfast/timer: the one queue it is for
    headers      text,
    body         text not null
);
create unique index holdfast_scheduled_id on holdfast_scheduled (id, queue);
create index holdfast_scheduled_due on holdfast_scheduled (claimable_at, seq);
create index holdfast_scheduled_queue on holdfast_scheduled (queue, claimable_at);
create index holdfast_scheduled_subject on holdfast_scheduled (subject, seq) where subject is not null;

-- Everything that is pending, for whoever asks. Workers do not read it.
create view holdfast_pending as
select seq, position, claimable_at, created_at, due_at, deadline, id, xact, status, epoch, attempts, failures, vanished, refunds,
       redrives, reason, head, queue, type, stream, subject, dedupe, target, errors, headers, body, traceback
  from holdfast_message
 union all
select seq, null, claimable_at, created_at, due_at, deadline, id, null, status, epoch, 0, 0, 0, 0,
       0, null, 1, queue, type, stream, subject, dedupe, target, null, headers, body, null
  from holdfast_scheduled;

-- What was scheduled before. What somebody has tried or holds stays where it is, and is handled there.
insert into holdfast_scheduled (seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream,
                                subject, dedupe, target, headers, body)
select seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream, subject, dedupe, target,
       headers, body
  from holdfast_message m
 where m.queue is not null and m.position is null and m.attempts = 0 and m.failures = 0 and m.vanished = 0 and m.refunds = 0
   and (m.queue = 'holdfast/timer'
        or (m.due_at is not null and m.claimable_at < 9223372036854775807
            and m.claimable_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer) + 60000000))
   and not exists (select 1 from holdfast_lease l where l.seq = m.seq);
delete from holdfast_message where seq in (select s.seq from holdfast_scheduled s);

-- The sequence of `message` is there from the beginning: what is scheduled may be the first to draw from it.
insert into sqlite_sequence (name, seq)
select 'holdfast_message', 0 where not exists (select 1 from sqlite_sequence where name = 'holdfast_message');

-- A plain INSERT of such a message goes there, too.
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
               when new.plain and stream is not null and due_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer)
               then 'holdfast/timer'
               else coalesce(queue, (select min(s.queue) from holdfast_subscription s where s.pattern = new.type
                      or (s.pattern like '%*' and substr(new.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))),
                      case when new.plain and due_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer) + 60000000
                           then 'holdfast/timer' end) end,
           target = case when new.plain and queue is not 'holdfast/timer' and stream is not null
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
    -- What is due in more than a minute, or enters a stream later, waits beside this table.
    insert into holdfast_scheduled (seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream,
                                    subject, dedupe, target, headers, body)
    select seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream, subject, dedupe, target,
           headers, body
      from holdfast_message
     where new.plain and id = new.id and seq >= new.seq and queue is not null and position is null
       and (queue = 'holdfast/timer'
            or claimable_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer) + 60000000);
    delete from holdfast_message
     where new.plain and id = new.id and seq in (select s.seq from holdfast_scheduled s where s.id = new.id);
end;

-- A turn withdraws what it no longer waits for from there, too.
drop trigger holdfast_turned_insert;
create trigger holdfast_turned_insert instead of insert on holdfast_turned
begin
    select raise(abort, 'holdfast: the turn of an orchestration is not the next one of its instance')
     where not exists (select 1 from holdfast_instance i
                        where i.id = new.row ->> 'id' and i.execution = new.row ->> 'execution'
                          and i.turn = (new.row ->> 'turn') - 1 and i.state in ('running', 'suspended'));
    update holdfast_instance
       set state = case state when 'suspended' then state else 'paused' end, trouble = new.row ->> 'trouble'
     where id = new.row ->> 'id' and new.row ->> 'body' is null;
    insert into holdfast_journal (id, execution, turn, part, body)
    select new.row ->> 'id', new.row ->> 'execution', new.row ->> 'turn', new.row ->> 'part', new.row ->> 'body'
     where new.row ->> 'body' is not null
     union all
    select new.row ->> 'id', (new.row ->> 'execution') + 1, 0, 0, new.row ->> 'begin' where new.row ->> 'begin' is not null;
    -- What runs for ever keeps the execution that has just ended, and none before.
    delete from holdfast_journal
     where new.row ->> 'begin' is not null and id = new.row ->> 'id' and execution < new.row ->> 'execution';
    update holdfast_instance
       set execution = execution + (new.row ->> 'begin' is not null),
           turn = case when new.row ->> 'begin' is null then new.row ->> 'turn' else 0 end,
           mark = new.row ->> 'mark', result = new.row ->> 'result', poison = new.row ->> 'poison',
           state = case when state = 'suspended' and new.row ->> 'state' = 'running' then state else new.row ->> 'state' end,
           trouble = case when state = 'suspended' and new.row ->> 'state' = 'running' then trouble
                          else new.row ->> 'trouble' end,
           status = coalesce(new.row ->> 'status', status),
           attributes = coalesce(new.row ->> 'attributes', attributes),
           entries = case when new.row ->> 'begin' is null then new.row ->> 'entries' else 0 end,
           size = case when new.row ->> 'begin' is null then new.row ->> 'size' else 0 end,
           turned_at = new.at, ended_at = case when new.row ->> 'state' <> 'running' then new.at end
     where id = new.row ->> 'id' and new.row ->> 'body' is not null;
    insert into holdfast_instance (id, queue, start, mark, reply, attributes, started_at)
    select s.value ->> 'id', s.value ->> 'queue', s.value ->> 'start', s.value ->> 'start', s.value ->> 'reply',
           s.value ->> 'attributes', new.at
      from json_each(coalesce(new.row -> 'starts', '[]')) s where true
        on conflict (id) do nothing;
    -- Timers that are not waited for any more and have not entered the stream.
    delete from holdfast_scheduled
     where queue = 'holdfast/timer' and id in (select t.value from json_each(coalesce(new.row -> 'timers', '[]')) t);
    -- Calls that are not waited for any more: who runs one is asked to stop, the others end here.
    update holdfast_lease set cancel = 1
     where seq in (select m.seq from holdfast_message m where m.stream is null
                      and m.id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c));
    insert into holdfast_history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type, stream, subject,
                                  why)
    select new.at, coalesce(m.due_at, m.created_at), m.id, m.status, m.attempts, m.failures, 'cancelled',
           coalesce(m.queue, ''), m.type, m.stream, m.subject, 'withdrawn by its orchestration'
      from holdfast_pending m
     where m.stream is null and m.id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c)
       and not exists (select 1 from holdfast_lease l where l.seq = m.seq);
    delete from holdfast_message
     where stream is null and id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c)
       and not exists (select 1 from holdfast_lease l where l.seq = holdfast_message.seq);
    delete from holdfast_scheduled
     where stream is null and id in (select c.value from json_each(coalesce(new.row -> 'calls', '[]')) c);
end;
