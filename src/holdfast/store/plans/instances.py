"""Instances of orchestrations and their journals. A turn itself is stored by `apply_turns` (deltas.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ...model import names
from ...model.instance import InstanceStatus
from ...model.message import NewMessage
from ..statement import Plan, single, statements
from ..values import as_id, encode, instant
from . import engine

sql = statements("instances")

PENDING, PENDING_BYTES = 100, 64 * 1024  # of the messages behind a poisoned one that its error carries
OPEN = ("running", "paused", "suspended")  # states of an instance that has not ended


class Stand(NamedTuple):
    """The position of an instance."""

    start: UUID
    execution: int
    turn: int
    mark: UUID
    state: str
    reply: str | None
    entries: int
    size: int


class Last(NamedTuple):
    """What is needed to end an instance whose turn is poison: its position, and the other messages in its stream.

    `journal`: that of its execution, if parts of the turn are stored; else empty.
    """

    stand: Stand | None
    pending: list[dict[str, Any]]
    left_out: int
    journal: list[tuple[int, int, str]]


class Part(msgspec.Struct, frozen=True):
    """A row of the journal for a turn in progress, and the lease (seq, epoch) under which it may be stored."""

    seq: int
    epoch: int
    id: str
    execution: int
    turn: int
    part: int
    body: str


class Shown(NamedTuple):
    """A row of `instance`, for people. `result` and `status` are JSON, and may be sealed."""

    id: str
    queue: str
    state: str
    execution: int
    turn: int
    status: str | None
    trouble: str | None
    attributes: str | None
    entries: int
    size: int
    started_at: datetime
    turned_at: datetime | None
    ended_at: datetime | None
    result: str | None = None  # not in lists

    def as_status(
        self, status: Any, attributes: Mapping[str, str], *, is_sealed: bool = False
    ) -> InstanceStatus:
        """The same with its JSON read."""
        name, _, version = self.queue.rpartition("@")
        return InstanceStatus(
            self.id, name, version, self.state, self.execution, self.turn, status, self.trouble, attributes,
            self.entries, self.size, self.started_at, self.turned_at, self.ended_at, is_sealed,
        )  # fmt: skip


def shown(row: Sequence[Any]) -> Shown:
    """A row of the database as a value."""
    made = Shown(*row)
    return made._replace(
        started_at=instant(made.started_at),
        turned_at=instant(made.turned_at),
        ended_at=instant(made.ended_at),
    )


def begin(message: NewMessage, attributes: str | None = None) -> Plan[bool]:
    """Start an instance: its row and its first message. False: its id is taken, and nothing is stored."""
    rows = yield sql(
        "instance_begin", id=message.stream, queue=message.queue, start=message.id, attributes=attributes
    )
    if not rows:
        return False
    yield from engine.append([message])
    return True


def send(
    id: str, message: NewMessage, elsewhere: str | None, resume: NewMessage | None = None
) -> Plan[str | None]:
    """Send a message to an instance; returns its state. None: there is none, and it goes to the queue `elsewhere`.

    A paused or suspended one gets it when it continues. `resume`: also stored if it is paused, and lets it try.
    While signals from before its start are in `elsewhere`, later ones go there too, behind them.
    """
    rows = yield sql("instance_queue", id=id)
    if rows:
        queue, state, is_expected = rows[0]
        if state in OPEN and is_expected and elsewhere is not None:
            yield from engine.append([replace(message, queue=elsewhere)])
        elif state in OPEN:  # deadlines are for `elsewhere`: here a dead letter would halt the stream
            yield from engine.append([replace(message, queue=queue, deadline=None)])
        if state == "paused" and resume is not None:
            yield from engine.append([resume])
        return str(state)
    if elsewhere is not None:
        yield from engine.append([replace(message, queue=elsewhere)])
    return None


@single
def queue_of(id: str) -> Plan[tuple[str, str] | None]:
    """The queue of an instance and its state."""
    rows = yield sql("instance_queue", id=id)
    return (str(rows[0][0]), str(rows[0][1])) if rows else None


@single
def stands(ids: Sequence[str]) -> Plan[dict[str, Stand]]:
    """The positions of these instances, by their ids."""
    rows = yield sql("instance_stands", ids=list(ids))
    return {
        id: Stand(as_id(start), execution, turn, as_id(mark), *rest)
        for id, start, execution, turn, mark, *rest in rows
    }


@single
def journals(ids: Sequence[str]) -> Plan[dict[str, list[tuple[int, int, str]]]]:
    """(turn, part, text) of each row of the current execution of these instances, in order."""
    rows = yield sql("instance_journals", ids=list(ids))
    found: dict[str, list[tuple[int, int, str]]] = {id: [] for id in ids}
    for id, turn, part, body in rows:
        found[id].append((turn, part, body))
    return found


@single
def store_parts(parts: Sequence[Part]) -> Plan[set[str]]:
    """Store parts of turns in progress, of one instance each. Returns the ids of those that were stored.

    A part is refused if its lease is lost, or if it is not the next part of its instance's current turn.
    """
    rows = yield sql("instance_parts", rows=encode(parts))
    return {id for (id,) in rows}


def last(queue: str, id: str, without: int) -> Plan[Last]:
    """For the end of an instance: its position, and the other messages of its stream, bounded."""
    found = (yield from stands([id])).get(id)
    rows = yield sql("instance_pending", queue=queue, id=id, seq=without, count=PENDING + 1)
    pending: list[dict[str, Any]] = []
    room = PENDING_BYTES
    for message_id, type, body, position, created in rows[:PENDING]:
        room -= len(body)
        if room < 0:
            break
        at = instant(created)
        pending.append(
            {
                "id": str(message_id),
                "type": type,
                "position": position,
                "created_at": at.isoformat(),
                "body": body,
            }
        )
    ((count,),) = yield sql("instance_pending_count", queue=queue, id=id, seq=without)
    parts: list[tuple[int, int, str]] = []
    if found is not None:
        ((has_parts,),) = yield sql("instance_has_parts", id=id, execution=found.execution, turn=found.turn)
        parts = (yield from journal(id, found.execution)) if has_parts else []
    return Last(found, pending, count - len(pending), parts)


@single
def journal(id: str, execution: int) -> Plan[list[tuple[int, int, str]]]:
    """(turn, part, text) of each row of an execution, in order."""
    rows = yield sql("instance_journal", id=id, execution=execution)
    return [(turn, part, body) for turn, part, body in rows]


@single
def progress(calls: Sequence[UUID]) -> Plan[dict[UUID, str]]:
    """The reported progress of these calls, by the ids of their messages: JSON, which may be sealed."""
    rows = yield sql("instance_progress", ids=list(calls))
    return {as_id(id): str(text) for id, text in rows}


def reopen(queue: str, id: str, poison: UUID) -> Plan[None]:
    """The dead letter that ended this instance comes back: the instance is open again."""
    yield sql("instance_reopen", id=id, queue=queue, poison=poison)


def poisoned(queue: str, id: str, poison: UUID) -> Plan[bool]:
    """Whether this dead letter ended this instance."""
    return bool((yield sql("instance_poisoned", id=id, queue=queue, poison=poison)))


@single
def show(id: str) -> Plan[Shown | None]:
    rows = yield sql("instance_show", id=names.askable(id))
    return shown(rows[0]) if rows else None
