"""Schedules in the store, as plans: set, ask, tick. schedules/ decides when something occurs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from ...model.schedule import Due, DueNow, Fired, Note, Step, Stored
from ..statement import Plan, Verb, single, statements
from ..values import BEGINNING, as_id, id_bytes, instant
from .operator import ago

sql = statements("schedules")

FIELDS = Stored._fields
INSTANTS = [
    FIELDS.index(name)
    for name in ("next_at", "last_at", "paused_at", "declared_at", "created_at", "changed_at", "now")
]
INCARNATION, LAST_ID = FIELDS.index("incarnation"), FIELDS.index("last_id")
WAKE_WITHIN = 2.0  # seconds: schedules due later are found by the check that every worker makes once a second
TAKEN = "id in use"
BY_AGE = attrgetter("due", "name")


def _stored(row: Sequence[Any]) -> Stored:
    values = list(row)
    for at in INSTANTS:
        if type(values[at]) is int:
            values[at] = instant(values[at])
    values[INCARNATION] = as_id(values[INCARNATION])
    values[LAST_ID] = None if values[LAST_ID] is None else as_id(values[LAST_ID])
    return Stored._make(values)


DUE_INCARNATION, DUE_BODY, NEXT_AT, NOW = Due._fields.index("incarnation"), Due._fields.index("body"), -2, -1


def _due(rows: Sequence[Sequence[Any]]) -> DueNow | None:
    """Rows with the columns of `Due`, then the next time and the time now."""
    if not rows:
        return None
    found = []
    for row in rows:
        values = list(row[:NEXT_AT])
        values[DUE_INCARNATION] = id_bytes(values[DUE_INCARNATION])
        found.append(Due._make(values))
    return DueNow(found, instant(rows[0][NOW]), instant(rows[-1][NEXT_AT]))


def _full(size: int) -> Callable[[Sequence[Any]], bool]:
    """Asks after each row whether so many bytes of bodies were read."""
    left = size

    def is_full(row: Sequence[Any]) -> bool:
        nonlocal left
        left -= len(row[DUE_BODY])
        return left <= 0

    return is_full


# -- the tick


class Cursor(NamedTuple):
    """The position of a schedule among all, by its next time."""

    at: datetime
    name: str


FIRST = Cursor(BEGINNING, "")


@single
def first(mine: Sequence[str], zoned: bool, since: Cursor = FIRST) -> Plan[tuple[Cursor | None, datetime]]:
    """Which schedule falls due next that this process may fire, and the time. `mine`: those in its code."""
    ((at, name, now),) = yield sql(
        "schedule_first", mine=list(mine), zoned=zoned, at=since.at, name=since.name
    )
    return None if at is None else Cursor(instant(at), name), instant(now)


@single
def due(
    mine: Sequence[str], zoned: bool, limit: int, size: int, since: Cursor = FIRST
) -> Plan[DueNow | None]:
    """Schedules that are due, the oldest occurrence first; on PostgreSQL locked.

    At most so many, and so many bytes of bodies; a single larger one is returned alone.
    """
    query = sql(
        "schedule_due", mine=list(mine), zoned=zoned, limit=limit, bytes=size, at=since.at, name=since.name
    )
    return _due((yield query.until(_full(size))))


class Fire(NamedTuple):
    """The result of a tick: the messages, how many schedules moved on, and which queues got messages."""

    fires: tuple[Fired, ...] = ()
    moved: int = 0
    queues: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()  # which schedule left out which occurrences
    lost: bool = False  # all of them had been changed since they were read


def apply(steps: Sequence[Step]) -> Plan[Fire]:
    """Store the decisions for schedules that are unchanged since they were read: rows, messages and notes."""
    moved = yield Verb("schedules", "move", (steps,))
    taken = steps if len(moved) == len(steps) else [step for step in steps if step.name in moved]
    fires = sorted((each for step in taken for each in step.fires), key=BY_AGE)
    left, queues = yield from fire(fires)
    notes = [(step.name, note) for step in taken for note in step.notes]
    yield from note(notes + left)
    left_out = tuple((step.name, text) for step in taken for text in step.left_out)
    return Fire(tuple(fires), len(taken), queues, left_out, lost=not taken)


@single
def fail(name: str, version: int, error: str) -> Plan[None]:
    """A schedule that is unchanged does not fire any more, whatever the database refuses of its row."""
    yield sql("schedule_fail", name=name, version=version, error=error)


def locked(
    mine: Sequence[str],
    zoned: bool,
    limit: int,
    size: int,
    since: Cursor,
    decide: Callable[[DueNow], list[Step]],
) -> Plan[Fire]:
    """A whole tick in one transaction, on PostgreSQL: the rows stay locked while the decisions are made."""
    yield sql("schedule_patience")
    found = yield from due(mine, zoned, limit, size, since)
    steps = decide(found) if found else []
    return (yield from apply(steps)) if steps else Fire()


def fire(fires: Sequence[Fired]) -> Plan[tuple[list[tuple[str, Note]], tuple[str, ...]]]:
    """Store messages of occurrences. Returns those that were left out because their id is in use, and the queues."""
    if not fires:
        return [], ()
    taken, queues = yield Verb("schedules", "fire", (fires,))
    by_id = {each.id: each for each in fires}
    return [
        (by_id[id].name, Note(by_id[id].key, by_id[id].key, 1, f"{TAKEN} in {queue or 'no queue'}"))
        for id, queue in taken
    ], queues


def note(notes: Sequence[tuple[str, Note]]) -> Plan[None]:
    if notes:
        rows = [
            {"name": name, "first_key": n.first_key, "last_key": n.last_key, "count": n.count, "why": n.why}
            for name, n in notes
        ]
        yield sql("schedule_noted").with_documents(rows=rows)


# -- zone data


def note_zones(version: str, names: Sequence[str], seconds: float) -> Plan[tuple[str | None, str | None]]:
    """Record that a process with this zone data and these schedules in its code is running.

    Returns the newest zone data that a process had within so many seconds, and the newest that any ever had.
    """
    yield sql("zones_seen", version=version)
    if names:
        yield sql("schedule_declared", names=list(names))
    since = yield from ago(seconds)
    ((live, ever),) = yield sql("zones_newer", since=since)
    return live, ever


def zone_data(seconds: float) -> Plan[list[str]]:
    """The versions of the zone data that processes had within so many seconds."""
    since = yield from ago(seconds)
    return [version for (version,) in (yield sql("zones_live", since=since))]


@single
def stale(zones: str, limit: int) -> Plan[DueNow | None]:
    """Schedules whose next time was computed with older zone data."""
    return _due((yield sql("schedule_stale", zones=zones, limit=limit)))


# -- setting


@single
def get(name: str) -> Plan[Stored | None]:
    rows = yield sql("schedule_get", name=name)
    return _stored(rows[0]) if rows else None


@single
def hold(name: str) -> Plan[Stored | None]:
    """One schedule, locked until the end of the transaction."""
    rows = yield sql("schedule_lock", name=name)
    return _stored(rows[0]) if rows else None


@single
def named(names: Sequence[str]) -> Plan[list[Stored]]:
    return [_stored(row) for row in (yield sql("schedule_named", names=list(names)))]


def put(row: dict[str, object], wakes: bool) -> Plan[None]:
    """Store a schedule, new or changed."""
    yield sql("schedule_put", **row)
    if wakes:
        yield Verb("schedules", "wake")


@single
def declared(names: Sequence[str]) -> Plan[None]:
    yield sql("schedule_declared", names=list(names))


@single
def drop(name: str) -> Plan[bool]:
    """False: there was none of that name."""
    return bool((yield sql("schedule_drop", name=name)))


@single
def pause(name: str, why: str | None) -> Plan[bool]:
    """False: it is paused already."""
    return bool((yield sql("schedule_pause", name=name, why=why)))


def resume(step: Step) -> Plan[None]:
    """A schedule continues at the given step; missed occurrences are noted."""
    yield from apply([step])
    yield sql("schedule_resume", name=step.name)
    yield Verb("schedules", "wake")


# -- asking


@single
def listed(*, prefix: str, after: str, state: str, late: datetime, limit: int) -> Plan[list[Stored]]:
    rows = yield sql(
        "schedule_list",
        after=after,
        first=prefix,
        last=prefix + "\U0010ffff",
        state=state,
        late=late,
        limit=limit,
    )
    return [_stored(row) for row in rows]


@single
def notes(name: str, limit: int) -> Plan[list[Note]]:
    rows = yield sql("schedule_notes", name=name, limit=limit)
    return [Note(first, last, int(count), why, instant(at)) for _, at, first, last, count, why in rows]


@single
def pending_of(id: str) -> Plan[list[int]]:
    """The numbers of the pending messages of an occurrence."""
    return [seq for (seq,) in (yield sql("schedule_last", id=id))]


class Counts(NamedTuple):
    """How many schedules there are, counted up to a limit; how many of them are paused, failed, due; the next time."""

    all: int
    paused: int
    failed: int
    due: int
    next_at: datetime | None


@single
def counts(limit: int) -> Plan[Counts]:
    ((all, paused, failed, due, next_at),) = yield sql("schedule_counts", limit=limit)
    return Counts(int(all), int(paused), int(failed), int(due), instant(next_at))
