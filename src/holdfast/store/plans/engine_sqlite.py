"""The verbs of storage on SQLite, as plans. Writers are serial, so every plan sees the truth and keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...clock import from_micros, micros
from ...errors import VersionConflict
from ...model.message import Y2000, Message, NewMessage, Published
from ...model.work import Batch, Found, Leased, Outcome, Report, Settlement, Unfit
from ..given import given, look_up, raise_if_taken
from ..statement import Dialect, Plan, Rows, Statement, load
from .deltas import apply_sqlite
from .families import NEVER, look_sqlite
from .rows import ATTEMPTS, EPOCH, ID, POSITION, QUEUE, RUN, SEQ, STREAM, Unread, by_queue, share
from .settling import admissible

TIMER = "holdfast/timer"
SIZE = 19  # in a row of work: the bytes of its body
TAKEABLE = 20  # in that of a follower: whether it may be handed out
PARKED = 9_223_372_036_854_775_807
FIRST = -PARKED - 1  # nothing is claimable before
PLACE_MAX = 2**62
AT_2000 = micros(Y2000)
FLAG_BITS = 16
TIMERS = 500  # that fire at once
TIMER_BYTES_MIN, TIMER_BYTES_MAX = 1024 * 1024, 64 * 1024 * 1024  # of their bodies
PLACING = 2  # the mark of a message that waits for its place inside the running transaction

_json = msgspec.json.Encoder()


def encode(value: Any) -> str:
    return _json.encode(value).decode()


def sql(name: str, /, **params: object) -> Statement:
    return Statement(load("sqlite", name), params)


def instant(value: datetime | None) -> int | None:
    return None if value is None else micros(value)


def since_2000(value: int | None) -> int | None:
    return None if value is None else value - AT_2000


def when(value: int | None) -> datetime | None:
    return None if value is None or value == PARKED else from_micros(value)


class SqlitePlans:
    """Each method is a plan: a generator that yields statements and is sent their rows."""

    dialect: Dialect = "sqlite"

    @staticmethod
    def boolean(value: bool) -> object:
        return int(value)

    @staticmethod
    def moment(value: Any) -> datetime:
        return from_micros(value)

    def __init__(self, errors_kept: int = 10) -> None:
        self.errors_kept = errors_kept
        self.appliers: dict[str, str] = {}  # of deltas, beside those in sql/: name -> statement

    # -- publishing

    def append(self, messages: Sequence[NewMessage], now: int) -> Plan[list[Published]]:
        if own := given(messages):
            return self._append_given(messages, own, now)
        return self._append(messages, now)

    def _append_given(
        self, messages: Sequence[NewMessage], own: Sequence[NewMessage], now: int
    ) -> Plan[list[Published]]:
        yield from look_up(self.dialect, own, encode, now)
        try:
            return (yield from self._append(messages, now))
        except Exception as error:
            raise_if_taken(error, own)
            raise

    def _append(self, messages: Sequence[NewMessage], now: int) -> Plan[list[Published]]:
        rows = [_draft(message, now) for message in messages]
        taken: dict[int, UUID] = {}
        if any(message.dedupe is not None for message in messages):
            taken = yield from self._duplicates(encode(rows))
            rows = [row for n, row in enumerate(rows) if n not in taken]
        yield sql("append", messages=encode(rows), now=now)
        if any(message.stream is not None for message in messages):
            yield from self.place(now)
        published = []
        for n, message in enumerate(messages):
            if n in taken:
                published.append(Published(taken[n], duplicate=True))
            else:
                if message.event:
                    yield from self._append_event(message, now)
                published.append(Published(message.id))
        return published

    def _append_event(self, message: NewMessage, now: int) -> Plan[int]:
        assert message.stream is not None
        rows = yield sql("event_version", stream=message.stream)
        reached = rows[0][0] if rows else 0
        if message.expect is not None and message.expect != reached:
            raise VersionConflict(message.stream, message.expect, reached)
        version = int(reached) + 1
        yield sql("event_bump", stream=message.stream, version=version)
        yield sql(
            "event_insert",
            stream=message.stream,
            version=version,
            id=str(message.id),
            type=message.type,
            subject=message.subject,
            headers=message.headers,
            body=message.body,
            now=now,
        )
        return version

    def _duplicates(self, messages: str) -> Plan[dict[int, UUID]]:
        """Take the dedupe keys. The answer: which messages come too late, and who was first."""
        fresh = set((yield sql("dedupe_take", messages=messages)))
        late: dict[int, UUID] = {}
        for n, scope, key, holder in (yield sql("dedupe_holders", messages=messages)):
            if (scope, key) in fresh:
                fresh.remove(
                    (scope, key)
                )  # this one took it; another with that key in the same call comes too late
            else:
                late[n] = UUID(holder)
        return late

    def place(self, now: int) -> Plan[None]:
        """Messages that were just stored enter the order of their streams."""
        yield sql("place_streams")
        heads = yield sql("place_heads")
        yield sql("place_messages", heads=encode([seq for (seq,) in heads]), now=now)

    def adopt(self, count: int, now: int) -> Plan[int]:
        """Unrouted messages go to those who subscribe to them now."""
        seqs = [seq for (seq,) in (yield sql("adopt_rows", count=count))]
        if seqs:
            yield sql("adopt_taken", seqs=encode(seqs), now=now, at=from_micros(now).isoformat())
            yield sql("adopt_deliver", seqs=encode(seqs), now=now)
            yield sql("settle_delete", seqs=encode(seqs))
            yield from self.place(now)
        return len(seqs)

    # -- the worker's turn

    def exchange(self, report: Report, now: int) -> Plan[Batch]:
        if report.asleep is not None:
            yield sql("worker_asleep", worker=report.worker, asleep=int(report.asleep))
        held: set[int] = set()
        if report.settlements:
            held = yield from self.settle(report.settlements, report.moves, now)
        more_timers = False
        paused = frozenset(name for (name,) in (yield sql("queues_paused")))
        if report.want:
            more_timers = yield from self._fire_timers(report.bytes_max, now)
        work: Rows = []
        if report.suspects:
            work = yield from self._claim_suspect(report, now)
        elif report.want and report.total > 0:
            work = yield from self._claim(report, paused, now)
        found: dict[str, Found] = {}
        found_due = NEVER
        if report.looks and not report.suspects:
            found, found_due = yield from look_sqlite(report.looks, paused, now)
        next_due, suspects = None, False
        if report.peek:
            queues = encode([want.queue for want in report.want] + [TIMER])
            families = encode([look.family for look in report.looks])
            ((due, waiting),) = yield sql("next_due", queues=queues, families=families, now=now, never=PARKED)
            due = min(PARKED if due is None else due, found_due)
            next_due, suspects = from_micros(now) if more_timers else when(due), bool(waiting)
        return Batch(
            now=from_micros(now),
            work=Unread(len(work), lambda: _leased(work)) if work else [],
            shares={queue: share(its) for queue, its in by_queue(work).items()},
            lost=frozenset(s.leased.message.seq for s in report.settlements) - held,
            next_due=next_due,
            suspects=suspects,
            paused=paused,
            found=found,
        )

    def settle(
        self, settlements: Sequence[Settlement], moves: Iterable[tuple[int, int]], now: int
    ) -> Plan[set[int]]:
        """Apply the settlements whose lease still stands; the answer names them by seq."""
        settlements = admissible(settlements)
        runs = encode(list({s.leased.run for s in settlements}))
        leases = {row[0]: row for row in (yield sql("settle_leases", runs=runs))}
        stood = [
            s for s in settlements if s.leased.run in leases and s.leased.run_epoch == leases[s.leased.run][1]
        ]
        followers = [s.leased.message.seq for s in stood if s.leased.message.seq != s.leased.run]
        if followers:  # which may have been taken out of their run meanwhile
            there = {seq for (seq,) in (yield sql("settle_there", seqs=encode(followers)))}
            stood = [
                s for s in stood if s.leased.message.seq == s.leased.run or s.leased.message.seq in there
            ]
        streams: dict[tuple[str, str], _Stream] = {}
        done = [s for s in stood if s.outcome is Outcome.DONE]
        if done:
            yield from self._settle_done(done, streams, now)
        for s in stood:
            if s.outcome is not Outcome.DONE:
                yield from self._settle_other(s, streams, now)
        yield from self._unlease({s.leased.run: leases[s.leased.run] for s in stood}, moves)
        yield from apply_sqlite(stood, self.appliers, now)
        yield from self.advance(streams, [m for s in stood for m in s.emits], now)
        return {s.leased.message.seq for s in stood}

    def _settle_done(
        self, done: Sequence[Settlement], streams: dict[tuple[str, str], _Stream], now: int
    ) -> Plan[None]:
        ends = {s.leased.message.seq: round(s.ran * 1000) << FLAG_BITS | s.flags for s in done}
        seqs = encode(list(ends))
        yield sql("settle_history", now=now, done=encode(ends), bits=FLAG_BITS)
        yield sql("settle_dedupe", seqs=seqs, now=now)
        yield sql("settle_delete", seqs=seqs)
        for s in done:
            if s.leased.message.position is not None:
                _count(streams, s.leased.message, removed=True)

    def _settle_other(self, s: Settlement, streams: dict[tuple[str, str], _Stream], now: int) -> Plan[None]:
        message = s.leased.message
        ((errors, position, _, _, _),) = yield sql("settle_read", seq=message.seq)
        counters: dict[str, Any] = {
            "flags": s.flags,
            "counted": int(s.counted),
            "failed": int(s.failed),
            "refunded": int(s.refunded),
            "started": int(s.started),
        }
        if s.error is not None:
            errors = self._with_error(errors, s, now)
        ordered = position is not None
        removed = ordered and (s.aside or s.outcome is not Outcome.AGAIN)
        match s.outcome:
            case Outcome.AGAIN | Outcome.RELEASE:
                yield sql(
                    "settle_again",
                    seq=message.seq,
                    errors=errors,
                    reason=s.reason,
                    claimable_at=now + round(s.delay * 1_000_000),
                    removed=int(removed),
                    **counters,
                )
            case Outcome.DEAD:
                yield sql(
                    "settle_dead",
                    seq=message.seq,
                    run=s.leased.run,
                    errors=errors,
                    reason=s.reason,
                    last_reason=s.last_reason,
                    fingerprint=s.fingerprint,
                    now=now,
                    **counters,
                )
                yield sql("settle_delete", seqs=encode([message.seq]))
            case _:
                counters = {key: counters[key] for key in ("flags", "counted", "failed")}
                yield sql(
                    "settle_ended",
                    seq=message.seq,
                    outcome=str(s.outcome),
                    ran=round(s.ran * 1000),
                    now=now,
                    **counters,
                )
                yield sql("settle_dedupe", seqs=encode([message.seq]), now=now)
                yield sql("settle_delete", seqs=encode([message.seq]))
        if ordered:
            _count(
                streams,
                message,
                removed=removed,
                halt=str(message.id) if s.halt and s.outcome is Outcome.DEAD else None,
            )

    def _with_error(self, errors: str | None, s: Settlement, now: int) -> str:
        known = decoded_errors(errors)
        known.append(
            {"at": from_micros(now).isoformat(), "reason": s.last_reason or s.reason, "text": s.error}
        )
        return encode(known[-self.errors_kept :])

    def _unlease(self, leases: Mapping[int, tuple[Any, ...]], moves: Iterable[tuple[int, int]]) -> Plan[None]:
        if leases:
            yield sql("settle_unlease", runs=encode(list(leases)))
            for run, following in moves:
                if run in leases:
                    _, _, until, worker, run_end = leases[run]
                    yield sql("settle_move", next=following, until=until, worker=worker, run_end=run_end)

    def advance(
        self, streams: dict[tuple[str, str], _Stream], emits: Sequence[NewMessage], now: int
    ) -> Plan[None]:
        """Streams count out what left their order and promote the next; what is emitted is stored behind it."""
        if streams:
            text = encode([(queue, name, s.removed, s.start, s.halt) for (queue, name), s in streams.items()])
            yield sql("advance_streams", streams=text, now=now)
            yield sql("advance_promote", streams=text, now=now)
        if emits:
            yield from self.append(emits, now)

    def _fire_timers(self, bytes_max: int, now: int) -> Plan[bool]:
        """Timers that are due enter their streams, so many and so many bytes at once. Whether others are due."""
        budget = _Budget(min(max(bytes_max, TIMER_BYTES_MIN), TIMER_BYTES_MAX))
        rows = yield sql("timers_due", now=now, count=TIMERS).until(lambda row: budget.spend(row[1]))
        if rows:
            seqs = encode([seq for seq, _ in rows])
            # Bodies are copied by the database: as one text of JSON they may be more than it can hold.
            yield sql("timers_taken", seqs=seqs, now=now, at=from_micros(now).isoformat())
            yield sql("timers_fire", seqs=seqs, now=now)
            yield sql("settle_delete", seqs=seqs)
            yield from self.place(now)
        return len(rows) == TIMERS or budget.is_spent

    def _claim(self, report: Report, paused: frozenset[str], now: int) -> Plan[Rows]:
        asked = len(report.want)
        live = {name for (name,) in (yield sql("claim_queues", most=asked))}
        if len(live) == asked:  # there may be more with heads than are asked: each of those is looked at
            live = {want.queue for want in report.want}
        live -= paused
        heads: Rows = []
        budget = _Budget(report.bytes_max)
        for want in report.want:
            if want.queue not in live or budget.is_spent:
                continue
            room = min(want.heads, report.total - len(heads))
            if room <= 0:
                continue
            after_at, after_seq = want.after or (None, -1)
            heads += yield sql(
                "claim_heads",
                queue=want.queue,
                heads=room,
                now=now,
                after_at=FIRST if after_at is None else instant(after_at),
                after_seq=after_seq,
            ).until(budget.take)
        if not heads:
            return []
        followers = yield from self._followers(heads, report, budget, now)
        ends = {row[RUN]: row[POSITION] for row in (*heads, *followers)}
        yield from self._lease(report, [(row[SEQ], ends[row[SEQ]], row[EPOCH]) for row in heads], now)
        return heads + followers

    def _followers(self, heads: Rows, report: Report, budget: _Budget, now: int) -> Plan[Rows]:
        """What is handed out behind the heads."""
        followers: Rows = []
        longest = {want.queue: want.run or report.run for want in report.want}
        for head in heads:
            if head[POSITION] is None:
                continue
            room = min(longest[head[QUEUE]] - 1, report.total - len(heads) - len(followers))
            if room <= 0 or budget.is_spent:
                continue
            found = yield sql(
                "claim_followers",
                run=head[SEQ],
                queue=head[QUEUE],
                stream=head[STREAM],
                position=head[POSITION],
                count=room,
                now=now,
            ).until(lambda row: not row[TAKEABLE] or budget.take(row))
            followers += found if not found or found[-1][TAKEABLE] else found[:-1]
        return followers

    def _claim_suspect(self, report: Report, now: int) -> Plan[Rows]:
        queues = encode([want.queue for want in report.want])
        families = encode([look.family for look in report.looks])
        without = encode([queue for look in report.looks for queue in look.without])
        rows = yield sql("claim_suspect", queues=queues, families=families, without=without, now=now)
        yield from self._lease(report, [(row[SEQ], None, row[EPOCH]) for row in rows], now)
        return rows

    def _lease(self, report: Report, heads: Sequence[tuple[int, int | None, int]], now: int) -> Plan[None]:
        until = now + round(report.lease * 1_000_000)
        loose = {seq: epoch for seq, end, epoch in heads if end is None}
        if loose:
            yield sql("claim_lease", heads=encode(loose), until=until, worker=report.worker)
        if len(loose) < len(heads):
            runs = [head for head in heads if head[1] is not None]
            yield sql("claim_lease_runs", heads=encode(runs), until=until, worker=report.worker)

    # -- leases

    def renew(
        self, worker: int, leases: Sequence[tuple[int, int]], lease: float, now: int
    ) -> Plan[tuple[set[int], set[int]]]:
        """The heartbeat: leases last longer. The answer: which are lost, and which are asked to be cancelled."""
        yield sql("worker_seen", worker=worker, now=now)
        text = encode(leases)
        yield sql("renew", leases=text, until=now + round(lease * 1_000_000))
        rows = yield sql("renew_lost", leases=text)
        return {seq for seq, lost in rows if lost}, {seq for seq, lost in rows if not lost}

    def recover(
        self,
        now: int,
        *,
        worker: int | None = None,
        running: Sequence[int] = (),
        ended: Sequence[int] = (),
        known: Sequence[int] = (),
        count: int = 1000,
    ) -> Plan[int]:
        """End leases that their holder will not end: those that lapsed, or those of one worker."""
        leases = yield sql("recover_leases", worker=worker, known=encode(known), now=now, count=count)
        for seq, run_end, stopping, queue, stream, position in leases:
            yield sql(
                "recover_messages",
                lapsed=int(worker is None),
                stopping=stopping,
                running=encode(running),
                ended=encode(ended),
                seq=seq,
                queue=queue,
                stream=stream,
                position=position,
                run_end=run_end,
                now=now,
            )
        yield sql("settle_unlease", runs=encode([row[0] for row in leases]))
        return len(leases)


class _Stream:
    """What happened to the order of one stream in a settlement."""

    __slots__ = ("halt", "removed", "start")

    def __init__(self) -> None:
        self.removed = 0
        self.start: int | None = None
        self.halt: str | None = None


def _count(
    streams: dict[tuple[str, str], _Stream], message: Message, *, removed: bool, halt: str | None = None
) -> None:
    if message.position is None or message.stream is None:
        return
    stream = streams.setdefault((message.queue, message.stream), _Stream())
    stream.removed += removed
    place = (
        message.position if message.position < PLACE_MAX else 0
    )  # else no place of ours: the others come before it
    stream.start = place if stream.start is None else min(stream.start, place)
    stream.halt = stream.halt or halt


def _draft(message: NewMessage, now: int) -> dict[str, object]:
    due = instant(message.due_at)
    if due is None and message.delay is not None:
        due = now + round(message.delay * 1_000_000)
    return {
        "id": str(message.id),
        "type": message.type,
        "body": message.body,
        "stream": message.stream,
        "subject": message.subject,
        "headers": message.headers,
        "dedupe": message.dedupe,
        "due": due,
        "deadline": instant(message.deadline),
        "queue": message.queue,
        "status": 3 if message.event else 1,
    }


class _Budget:
    """How many bytes of bodies may still be handed out; the one that is beyond is the last."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def is_spent(self) -> bool:
        return self.left <= 0

    def take(self, row: tuple[Any, ...]) -> bool:
        return self.spend(row[SIZE])

    def spend(self, size: int) -> bool:
        self.left -= size
        return self.left <= 0


def decoded_errors(errors: Any) -> list[Any]:
    """A stored error history. What is none, whoever wrote it, is kept as the text of one entry."""
    if not isinstance(errors, str | bytes):  # PostgreSQL's are read already
        return errors if isinstance(errors, list) else [] if errors is None else [{"text": str(errors)}]
    try:
        found = msgspec.json.decode(errors) if errors else []
    except (msgspec.DecodeError, UnicodeError):
        found = as_text(errors)
    return found if isinstance(found, list) else [{"text": str(found)}]


class Row(msgspec.Struct, array_like=True):
    """A row of work as it must be: SQLite itself keeps whatever it is given in any column."""

    seq: int
    id: UUID
    queue: str
    type: str
    body: str
    stream: str | None
    position: int | None
    subject: str | None
    headers: str | None
    status: int
    attempts: int
    failures: int
    vanished: int
    refunds: int
    created_at: int
    due_at: int | None
    deadline: int | None
    epoch: int


def _leased(rows: Rows) -> list[Leased]:
    try:
        return _leased_all(rows)
    except Exception:  # one of them is not what it must be: each by itself
        epochs = {row[SEQ]: row[EPOCH] for row in rows}
        return [each for row in rows for each in _leased_one(row, epochs[row[RUN]])]


def _leased_one(row: tuple[Any, ...], run_epoch: int) -> list[Leased]:
    """One row; if it cannot be read, then what is needed to settle it, and why."""
    try:
        msgspec.convert(row[: EPOCH + 1], Row)
        (found,) = _leased_all([(*row[:RUN], row[SEQ], *row[RUN + 1 :])])
        return [msgspec.structs.replace(found, run=row[RUN], run_epoch=run_epoch)]
    except Exception as error:
        why = str(error).replace("$[", "column [")
    try:
        id = UUID(as_text(row[ID]))
    except ValueError:
        id = UUID(int=row[SEQ])
    names = [None if row[n] is None else as_text(row[n]) for n in (2, 3, 4, 5, 7, 8)]
    queue, type, body, stream, subject, headers = names
    message = Message(
        row[SEQ], id, queue or "", type or "", body or "", stream, row[POSITION], subject, headers,
        0, 0, 0, 0, 0, 0, None, None,
    )  # fmt: skip
    return [Unfit(message, row[EPOCH], 0, row[RUN], run_epoch, why)]


def as_text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _leased_all(rows: Rows) -> list[Leased]:
    epochs = {row[SEQ]: row[EPOCH] for row in rows}
    ids = msgspec.convert([row[ID] for row in rows], list[UUID])  # a tenth of what one by one takes
    return [
        Leased(
            Message(
                row[0], id, row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11],
                row[12], row[13], row[14] - AT_2000, since_2000(row[15]), since_2000(row[16]),
            ),
            row[EPOCH],
            row[ATTEMPTS] + 1,
            row[RUN],
            epochs[row[RUN]],
        )
        for row, id in zip(rows, ids, strict=True)
    ]  # fmt: skip
