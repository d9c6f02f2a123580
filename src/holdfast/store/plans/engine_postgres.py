"""The verbs of storage on PostgreSQL, as plans: each is one call of a function, so one round trip and one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import compress
from operator import attrgetter, not_
from typing import NamedTuple, TypeVar

import msgspec

from ...errors import VersionConflict
from ...model.message import Flag, Message, NewMessage, Published, from_raw
from ...model.work import Batch, Leased, Mark, Outcome, Report, Settlement, Share
from ..given import given, look_up, raise_if_taken
from ..statement import Plan, Query, Row, Rows, Statement, Verb, statements
from ..text import DEFAULT_SCHEMA, Dialect, load
from ..values import as_id, encode
from .deltas import deltas_postgres
from .families import found_postgres, looks_postgres
from .firing import PostgresSchedules
from .operator_postgres import PostgresOperator
from .requests_postgres import PostgresRequests
from .rows import ATTEMPTS, BODY, EPOCH, POSITION, RUN, SEQ, STREAM, Unread, by_queue, share
from .scheduled_postgres import PostgresScheduled
from .settling import MessageFence, admissible, message_fence

T = TypeVar("T")

SUBJECT, HEADERS, VANISHED, CREATED, DUE, CLAIMABLE_AT = 7, 8, 12, 14, 15, 19  # in a row of work
# Computed once: each operation on an enum costs a microsecond. `settle_done` sets no other flags than these.
DONE, FLAGS_OF_DONE = Outcome.DONE, (0, int(Flag.PUBLISHED))

Emit = tuple[Settlement, NewMessage]  # what is emitted, and with what

sql = statements("engine")
APPEND_ONE = ("engine/append_one",)  # made once: every publish uses it


class Turn(NamedTuple):
    """The first row of an exchange, which is not work: it concerns the whole turn.

    All rows of a function have the same columns, so it uses those of a message (functions/exchange.sql).
    """

    now: int  # as PostgreSQL sends it, and so is next_due
    next_due: int | None
    looked: int | None  # microseconds that were spent on looking for work
    shares: str | None  # JSON; None: to be counted from the rows
    held: str | None  # the numbers of the settled messages whose lease was valid; None: all
    suspects: int | None  # whether any wait for the quarantine
    paused: str | None  # JSON: the queues that are paused
    found: str | None  # JSON: which queues of families have work

    @classmethod
    def of(cls, row: Row) -> Turn:
        return cls(
            now=row[CREATED],
            next_due=row[DUE],
            looked=row[POSITION],
            shares=row[SUBJECT],
            held=row[HEADERS],
            suspects=row[VANISHED],
            paused=row[BODY],
            found=row[STREAM],
        )


class PostgresEngine:
    """The verbs on PostgreSQL. Each is a plan."""

    dialect: Dialect = "postgres"

    def __init__(self, schema: str = DEFAULT_SCHEMA, errors_kept: int = 10) -> None:
        self.schema = schema
        self.errors_kept = errors_kept
        self._parts = {
            "engine": self,
            "operator": PostgresOperator(schema, errors_kept),
            "schedules": PostgresSchedules(),
            "scheduled": PostgresScheduled(),
            "requests": PostgresRequests(),
        }

    def bind(self, query: Query, now: datetime | None) -> Statement:
        params: dict[str, object] = {"now": now, **query.params}
        for name, document in query.documents.items():
            params[name] = encode(document)
        return Statement(load("postgres", query.parts, self.schema), params, is_raw=query.is_raw)

    def perform(self, verb: Verb[T], now: datetime | None) -> Plan[T]:
        plan: Plan[T] = getattr(self._parts[verb.stem], verb.name)(*verb.args, **verb.options)
        return plan

    def append(self, messages: Sequence[NewMessage], *, place: bool = False) -> Plan[list[Published]]:
        """Store messages. `place`: the transaction is our own and ends here, so streams are counted at once."""
        if own := given(messages):
            return self._append_given(messages, own, place)
        return self._append(messages, place)

    def _append_given(
        self, messages: Sequence[NewMessage], own: Sequence[NewMessage], place: bool
    ) -> Plan[list[Published]]:
        yield from look_up(own)
        try:
            return (yield from self._append(messages, place))
        except Exception as error:
            raise_if_taken(error, own, self.schema)
            raise

    def _append(self, messages: Sequence[NewMessage], place: bool) -> Plan[list[Published]]:
        if len(messages) == 1:
            (m,) = messages
            special = m.dedupe or m.event or m.queue or m.due_at or m.deadline or m.delay is not None
            if not special and not (place and m.stream):  # the usual case
                return self._append_one(m)
        return self._append_many(messages, place)

    def _append_many(self, messages: Sequence[NewMessage], place: bool) -> Plan[list[Published]]:
        common = {
            "id": [m.id for m in messages],
            "body": [m.body for m in messages],
            "subject": column([m.subject for m in messages]),
            "headers": column([m.headers for m in messages]),
        }
        special = {
            "stream": column([m.stream for m in messages]),
            "dedupe": column([m.dedupe for m in messages]),
            "due": column([m.due_at for m in messages]),
            "delay": column([m.delay for m in messages]),
            "deadline": column([m.deadline for m in messages]),
            "queue": column([m.queue for m in messages]),
            "kept": column([m.kept for m in messages]),
        }
        types = [m.type for m in messages]
        if len(set(types)) == 1 and not any(special.values()):
            yield sql("append_plain", type=types[0], **common)
            return [Published(message.id) for message in messages]
        # Rows of event streams come before rows of streams, sorted: with an event, places are given at the commit.
        events = sorted((m for m in messages if m.event), key=lambda m: (m.stream or "").encode())
        rows = yield sql(
            "append",
            type=types,
            status=column([3 if m.event else None for m in messages]),
            place=place and not events and special["stream"] is not None,
            **common,
            **special,
        )
        taken = {n - 1: as_id(first) for n, first in rows}
        duplicates = {id(messages[n]) for n in taken}
        for message in events:
            if id(message) not in duplicates:
                yield from self._append_event(message)
        return [
            Published(taken[n], duplicate=True) if n in taken else Published(message.id)
            for n, message in enumerate(messages)
        ]

    def _append_one(self, message: NewMessage) -> Plan[list[Published]]:
        params = {
            "id": message.id,
            "type": message.type,
            "body": message.body,
            "stream": message.stream,
            "subject": message.subject,
            "headers": message.headers,
        }
        yield Query(APPEND_ONE, params)
        return [Published(message.id)]

    def _append_event(self, message: NewMessage) -> Plan[int]:
        assert message.stream is not None
        ((version, stored),) = yield sql(
            "event_append",
            stream=message.stream,
            id=message.id,
            type=message.type,
            subject=message.subject,
            headers=message.headers,
            body=message.body,
            expect=message.expect,
        )
        if not stored:
            raise VersionConflict(message.stream, message.expect, version)
        return int(version)

    def adopt(self, count: int) -> Plan[int]:
        rows = yield sql("adopt", count=count)
        return int(rows[0][0])

    def exchange(self, report: Report) -> Plan[Batch]:
        want, settlements = report.want, admissible(report.settlements)
        emits = [(s, m) for s in settlements for m in s.emits]
        own = (yield from self._look_up(emits, settlements)) if emits else []
        statement = sql(
            "exchange",
            worker=report.worker,
            queue=[w.queue for w in want] or None,
            heads=[w.heads for w in want] or None,
            after_at=column([w.after and w.after[0] for w in want]),
            after_seq=column([w.after and w.after[1] for w in want]),
            total=report.total,
            lease=report.lease,
            runs=[w.run or report.run for w in want] or None,
            bytes=report.bytes_max,
            suspects=report.suspects,
            peek=report.peek,
            asleep=report.asleep,
            **looks_postgres(report.looks),
            **self._settlements(settlements, report.moves, emits),
        )
        try:
            rows = yield statement.raw()
        except Exception as error:
            raise_if_taken(error, own, self.schema)
            raise
        turn = Turn.of(rows[0])
        shares, marks = _shares(turn.shares) if turn.shares is not None else _counted(rows[1:])
        lost: frozenset[int] = frozenset()
        if turn.held is not None or len(settlements) < len(report.settlements):
            held = {s.leased.message.seq for s in settlements}
            if turn.held is not None:
                held = {int(seq) for seq in turn.held.split(",") if seq}
            lost = frozenset(s.leased.message.seq for s in report.settlements) - held
        return Batch(
            now=from_raw(turn.now),
            work=Unread(len(rows) - 1, lambda: _leased(rows[1:])) if len(rows) > 1 else [],
            looked=0.0 if turn.looked is None else turn.looked / 1e6,
            shares=shares,
            lost=lost,
            next_due=None if turn.next_due is None else from_raw(turn.next_due),
            marks=marks,
            suspects=bool(turn.suspects),
            paused=frozenset(msgspec.json.decode(turn.paused)) if turn.paused else frozenset(),
            found=found_postgres(turn.found),
        )

    def settle(self, settlements: Sequence[Settlement], moves: Iterable[tuple[int, int]]) -> Plan[set[int]]:
        settlements = admissible(settlements)
        emits = [(s, m) for s in settlements for m in s.emits]
        own = yield from self._look_up(emits, settlements)
        try:
            ((held,),) = yield sql("settle", **self._settlements(settlements, moves, emits))
        except Exception as error:
            raise_if_taken(error, own, self.schema)
            raise
        return set(held)

    def _look_up(self, emits: Sequence[Emit], settlements: Sequence[Settlement]) -> Plan[list[NewMessage]]:
        """Look up the ids that handlers gave to emitted messages; messages that end here no longer hold theirs."""
        own = given([m for _, m in emits])
        if own:
            ending = [s.leased.message.seq for s in settlements if s.outcome in (DONE, Outcome.CANCELLED)]
            yield from look_up(own, ending)
        return own

    def _settlements(
        self, settlements: Sequence[Settlement], moves: Iterable[tuple[int, int]], emits: Sequence[Emit]
    ) -> dict[str, object]:
        # Heads come before their followers: locks are taken in that order everywhere.
        alone = len({s.leased.run for s in settlements}) == len(settlements)
        done, other = _apart(sorted(settlements, key=_by_run if alone else _lock_order), alone)
        moved = list(moves)
        leased = [s.leased for s in done]
        return {
            "seq": [each.message.seq for each in leased] or None,
            "run": [each.run for each in leased] or None,
            "epoch": [each.run_epoch for each in leased] or None,
            "ran": [round(s.ran * 1000) for s in done] or None,
            "other": encode([_other(s) for s in other]) if other else None,
            "move_from": [run for run, _ in moved] or None,
            "move_to": [following for _, following in moved] or None,
            "emits": encode([_emit(message_fence(s), m) for s, m in emits]) if emits else None,
            "deltas": deltas_postgres(settlements, _emit),
            "keep": self.errors_kept,
        }

    def renew(
        self, worker: int, leases: Sequence[tuple[int, int]], lease: float
    ) -> Plan[tuple[set[int], set[int]]]:
        rows = yield sql(
            "renew",
            worker=worker,
            seq=[seq for seq, _ in leases],
            epoch=[epoch for _, epoch in leases],
            lease=lease,
        )
        return {seq for seq, lost in rows if lost}, {seq for seq, lost in rows if not lost}

    def recover(
        self,
        *,
        worker: int | None = None,
        running: Sequence[int] = (),
        ended: Sequence[int] = (),
        known: Sequence[int] = (),
        count: int = 1000,
    ) -> Plan[int]:
        rows = yield sql(
            "recover",
            worker=worker,
            running=list(running),
            ended=list(ended),
            known=list(known),
            count=count,
        )
        return int(rows[0][0])


def column(values: list[T | None]) -> list[T | None] | None:
    """One value for each message, or nothing if no message has one: most columns are mostly empty."""
    return None if values.count(None) == len(values) else values


_by_run = attrgetter("leased.run")


def _lock_order(s: Settlement) -> tuple[int, int]:
    message = s.leased.message
    return (s.leased.run, -1 if message.seq == s.leased.run else message.position or 0)


def _apart(settlements: list[Settlement], alone: bool) -> tuple[list[Settlement], list[Settlement]]:
    """The settlements that are simply done, and the others.

    The others are applied second, and heads are locked first: so a run whose head is among them is completely among
    them.
    """
    other = [s.outcome is not DONE or s.flags not in FLAGS_OF_DONE for s in settlements]
    if True not in other:
        return settlements, []
    if not alone:
        runs = {s.leased.run for s in compress(settlements, other) if s.leased.run == s.leased.message.seq}
        other = [is_other or s.leased.run in runs for s, is_other in zip(settlements, other, strict=True)]
    return list(compress(settlements, map(not_, other))), list(compress(settlements, other))


def _other(s: Settlement) -> dict[str, object]:
    return {
        "seq": s.leased.message.seq,
        "run": s.leased.run,
        "epoch": s.leased.run_epoch,
        "outcome": str(s.outcome),
        "delay": s.delay,
        "flags": s.flags,
        "failed": s.failed,
        "counted": s.counted,
        "refunded": s.refunded,
        "started": s.started,
        "aside": s.aside,
        "halt": s.halt,
        "pause": s.pause,
        "reason": s.reason,
        "last_reason": s.last_reason,
        "error": s.error,
        "ran": round(s.ran * 1000),
        "fingerprint": s.fingerprint,
        "traceback": s.traceback,
    }


def _emit(by: MessageFence, m: NewMessage) -> dict[str, object]:
    return {
        "by": by[0],
        "run": by[1],
        "epoch": by[2],
        "id": m.id,
        "type": m.type,
        "body": m.body,
        "stream": m.stream,
        "subject": m.subject,
        "headers": m.headers,
        "dedupe": m.dedupe,
        "due_at": m.due_at,
        "delay": m.delay,
        "deadline": m.deadline,
        "queue": m.queue,
        "status": 3 if m.event else 1,
        "kept": m.kept,
        "expect": m.expect,
    }


def _shares(text: str) -> tuple[dict[str, Share], dict[str, Mark]]:
    """What each queue got, and the position of its last head, as `claim` returns it: no row needs to be decoded."""
    listed = msgspec.json.decode(text)
    return (
        {queue: Share(*share) for queue, *share, _, _ in listed},
        {queue: (datetime.fromisoformat(at), seq) for queue, *_, at, seq in listed},
    )


def _counted(rows: Rows) -> tuple[dict[str, Share], dict[str, Mark]]:
    """The same for a suspect, which comes alone."""
    queues = by_queue(rows)
    return (
        {queue: share(its) for queue, its in queues.items()},
        {queue: (from_raw(its[-1][CLAIMABLE_AT]), its[-1][SEQ]) for queue, its in queues.items()},
    )


def _leased(rows: Rows) -> list[Leased]:
    epochs = {row[SEQ]: row[EPOCH] for row in rows}
    return [
        Leased(Message(*row[:EPOCH]), row[EPOCH], row[ATTEMPTS] + 1, row[RUN], epochs[row[RUN]])
        for row in rows
    ]
