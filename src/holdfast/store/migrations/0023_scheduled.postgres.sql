-- What is due in more than a minute, and what enters a stream later, waits here and not in `message`: exchanges, status and
-- vacuum of `message` do not read it. The tick brings it over when it is due. Numbers are drawn from the sequence of
-- `message`, so a number means one message, wherever it is.
create table holdfast.scheduled (
    seq          bigint primary key default nextval('holdfast.message_seq_seq'),
    claimable_at timestamptz not null,   -- when it is brought over; infinity: parked
    created_at   timestamptz not null,
    due_at       timestamptz,
    deadline     timestamptz,
    id           uuid not null,
    status       integer not null default 1,
    epoch        integer not null default 0,
    queue        text collate "C" not null,   -- holdfast/timer: whose it is, is decided when it is due
    type         text collate "C" not null,
    stream       text collate "C",
    subject      text,
    dedupe       text,
    target       text collate "C",       -- in holdfast/timer: the one queue it is for
    headers      text,
    body         text not null
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
create unique index scheduled_id on holdfast.scheduled (id, queue);
create index scheduled_due on holdfast.scheduled (claimable_at, seq);
create index scheduled_queue on holdfast.scheduled (queue, claimable_at);
create index scheduled_subject on holdfast.scheduled (subject text_pattern_ops, seq) where subject is not null;

-- Everything that is pending, for whoever asks. Workers do not read it.
create view holdfast.pending as
select seq, position, claimable_at, created_at, due_at, deadline, id, xact, status, epoch, attempts, failures, vanished, refunds,
       redrives, reason, head, queue, type, stream, subject, dedupe, target, errors, headers, body, traceback
  from holdfast.message
 union all
select seq, null::bigint, claimable_at, created_at, due_at, deadline, id, null::xid8, status, epoch, 0, 0, 0, 0,
       0, null::smallint, true, queue, type, stream, subject, dedupe, target, null::jsonb, headers, body, null::text collate "C"
  from holdfast.scheduled;

-- What a plain INSERT scheduled is put by when it is stored, so that the INSERT still answers with its row. The body of the
-- function comes with the others.
create function holdfast.put_by_plain() returns trigger language plpgsql as 'begin return null; end';
create trigger message_put_by after insert on holdfast.message
    for each row when (new.plain is not null) execute function holdfast.put_by_plain();

-- What was scheduled before. What somebody has tried or holds stays where it is, and is handled there.
with gone as (
    delete from holdfast.message m
     where m.queue is not null and m.position is null and m.attempts = 0 and m.failures = 0 and m.vanished = 0 and m.refunds = 0
       and (m.queue = 'holdfast/timer'
            or (m.due_at is not null and m.claimable_at > clock_timestamp() + interval '1 minute' and m.claimable_at < 'infinity'))
       and not exists (select 1 from holdfast.lease l where l.seq = m.seq)
    returning *)
insert into holdfast.scheduled (seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream,
                                subject, dedupe, target, headers, body)
select seq, claimable_at, created_at, due_at, deadline, id, status, epoch, queue, type, stream, subject, dedupe, target,
       headers, body
  from gone;
