-- Requests with deadlines, and every result that came for one. Bodies may be sealed.
create table holdfast_request (
    id           text primary key,               -- also that of the message that was sent with it
    kind         text not null,
    variant      text,               -- of the kind: which of its times holds
    type         text,               -- of the message that was sent; null: none was
    stream       text,
    subject      text,
    body         text not null,
    state        text not null default 'open' check (state in ('open', 'completed', 'failed', 'cancelled')),
    reason       text,                           -- TIMEOUT, or what the other side or the one who cancelled said
    created_at   integer not null,
    deadline     integer not null,
    soft_at      integer,                    -- when its delay is told
    told_at      integer,                    -- when it was
    next_at      integer,                    -- when a worker must look at it: it is open
    ended_at     integer,
    timed_out_at integer,
    result       text,                           -- the one that decided, or was accepted
    received_at  integer,                    -- its time
    accepted_at  integer,
    accepted_by  text,
    results      integer not null default 0,     -- how many came, and how many of them late
    late         integer not null default 0,
    check ((state = 'open') = (ended_at is null)),
    check ((state = 'open') = (next_at is not null)),
    check (timed_out_at is null or state = 'failed' or (state = 'completed' and accepted_at is not null)),
    check (accepted_at is null or (timed_out_at is not null and result is not null and received_at > deadline)),
    check (state <> 'completed' or result is not null),
    check (state <> 'completed' or accepted_at is not null or received_at <= deadline)
) without rowid;
create index holdfast_request_due on holdfast_request (next_at, id) where next_at is not null;
create index holdfast_request_ended on holdfast_request (ended_at, id) where ended_at is not null;
create index holdfast_request_states on holdfast_request (state, kind, created_at, id);
create index holdfast_request_late on holdfast_request (id) where late > 0 and accepted_at is null;

create table holdfast_request_result (
    id          text primary key,
    request     text not null,
    received_at integer not null,
    standing    text not null check (standing in ('decisive', 'late', 'duplicate', 'early')),
    failed      text,                            -- what went wrong there; null: it is a good one
    body        text not null,
    source      text                             -- the message that brought it; null: a call did
) without rowid;
create index holdfast_request_result_of on holdfast_request_result (request, received_at, id);
create unique index holdfast_request_result_source on holdfast_request_result (request, source) where source is not null;
create unique index holdfast_request_result_decisive on holdfast_request_result (request) where standing = 'decisive';
create index holdfast_request_result_early on holdfast_request_result (request) where standing = 'early';

-- Results are only added and removed; a rotation of keys may write the body again.
create trigger holdfast_request_result_kept before update on holdfast_request_result
when new.id <> old.id or new.request <> old.request or new.received_at <> old.received_at
  or new.standing <> old.standing or new.failed is not old.failed or new.source is not old.source
begin
    select raise(abort, 'holdfast: a result of a request is never changed');
end;
create trigger holdfast_request_ends_once before update of state on holdfast_request
when old.state <> 'open' and new.state <> old.state
 and not (old.state = 'failed' and old.timed_out_at is not null and new.state = 'completed' and new.accepted_at is not null)
begin
    select raise(abort, 'holdfast: a request ends once');
end;
