-- Requests with deadlines, and every result that came for one. Bodies may be sealed.
create table holdfast.request (
    id           uuid primary key,               -- also that of the message that was sent with it
    kind         text collate "C" not null,
    variant      text collate "C",               -- of the kind: which of its times holds
    type         text collate "C",               -- of the message that was sent; null: none was
    stream       text collate "C",
    subject      text collate "C",
    body         text not null,
    state        text collate "C" not null default 'open' check (state in ('open', 'completed', 'failed', 'cancelled')),
    reason       text,                           -- TIMEOUT, or what the other side or the one who cancelled said
    created_at   timestamptz not null,
    deadline     timestamptz not null,
    soft_at      timestamptz,                    -- when its delay is told
    told_at      timestamptz,                    -- when it was
    next_at      timestamptz,                    -- when a worker must look at it: it is open
    ended_at     timestamptz,
    timed_out_at timestamptz,
    result       uuid,                           -- the one that decided, or was accepted
    received_at  timestamptz,                    -- its time
    accepted_at  timestamptz,
    accepted_by  text,
    results      integer not null default 0,     -- how many came, and how many of them late
    late         integer not null default 0,
    -- What no worker could read, whoever stores it.
    check (least(created_at, deadline, soft_at, told_at, next_at, ended_at, timed_out_at, received_at, accepted_at)
           >= '0001-01-01 00:00:00+00' and
           greatest(created_at, deadline, soft_at, told_at, next_at, ended_at, timed_out_at, received_at, accepted_at)
           < '10000-01-01 00:00:00+00'),
    check ((state = 'open') = (ended_at is null)),
    check ((state = 'open') = (next_at is not null)),
    check (timed_out_at is null or state = 'failed' or (state = 'completed' and accepted_at is not null)),
    check (accepted_at is null or (timed_out_at is not null and result is not null and received_at > deadline)),
    check (state <> 'completed' or result is not null),
    check (state <> 'completed' or accepted_at is not null or received_at <= deadline)
) with (fillfactor = 80);
create index request_due on holdfast.request (next_at, id) where next_at is not null;
create index request_ended on holdfast.request (ended_at, id) where ended_at is not null;
create index request_states on holdfast.request (state, kind, created_at, id);
create index request_late on holdfast.request (id) where late > 0 and accepted_at is null;

create table holdfast.request_result (
    id          uuid primary key,
    request     uuid not null,
    received_at timestamptz not null
                check (received_at >= '0001-01-01 00:00:00+00' and received_at < '10000-01-01 00:00:00+00'),
    standing    text collate "C" not null check (standing in ('decisive', 'late', 'duplicate', 'early')),
    failed      text,                            -- what went wrong there; null: it is a good one
    body        text not null,
    source      uuid                             -- the message that brought it; null: a call did
);
create index request_result_of on holdfast.request_result (request, received_at, id);
create unique index request_result_source on holdfast.request_result (request, source) where source is not null;
create unique index request_result_decisive on holdfast.request_result (request) where standing = 'decisive';
create index request_result_early on holdfast.request_result (request) where standing = 'early';

-- Results are only added and removed; a rotation of keys may write the body again. The bodies of these functions come with
-- the others; the triggers only need their names.
create function holdfast.keep_result() returns trigger language plpgsql as 'begin return new; end';
create function holdfast.end_request_once() returns trigger language plpgsql as 'begin return new; end';
create trigger request_result_kept before update on holdfast.request_result
    for each row execute function holdfast.keep_result();
create trigger request_ends_once before update on holdfast.request
    for each row when (old.state <> 'open' and new.state <> old.state) execute function holdfast.end_request_once();
