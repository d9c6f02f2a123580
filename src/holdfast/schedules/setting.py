"""Sets, drops, pauses and resumes schedules, as plans: in a transaction of their own or in the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from ..bodies.keys import Keys
from ..errors import NotFound, Refused, UsageError
from ..model.ids import new_id
from ..model.schedule import Definition, Due, Note, Origin, Planned, Step, Stored
from ..rules import recurrence, tick
from ..rules.patterns import Rule
from ..rules.tick import LeftOut, Tick, Why
from ..rules.timeline import Timeline
from ..store.plans import schedules
from ..store.plans.operator import moment
from ..store.statement import Plan
from . import zones
from .defining import digest

UTC_NAMES = ("UTC", "Etc/UTC")
SOON = timedelta(seconds=schedules.WAKE_WITHIN)


def data_of(rule: Rule) -> str | None:
    """The version of the zone data that a rule's times depend on; None: they depend on none."""
    return None if rule.zone in UTC_NAMES else zones.version()


def timeline_of(row: Stored | Due) -> Timeline:
    """When it occurs. Schedules with the same rule share it, unless jitter separates them."""
    rule = recurrence.parse(row.rule)
    return zones.timeline(rule, row.name) if rule.jitter else _shared(row.rule, zones.version())


@lru_cache(maxsize=4096)
def _shared(rule: str, version: str) -> Timeline:
    return zones.timeline(recurrence.parse(rule))


def put(definition: Definition, keys: Keys | None, origin: Origin = "call") -> Plan[Planned]:
    """Store a schedule. An existing one of that name keeps its incarnation and keys, whatever has changed."""
    row = yield from schedules.hold(definition.name)
    now = row.now if row is not None else (yield from moment())
    if row is not None and row.origin != origin:
        raise UsageError(_other_origin(row))
    return (yield from _put(definition, keys, origin, row, now))


def _put(
    definition: Definition, keys: Keys | None, origin: Origin, row: Stored | None, now: datetime
) -> Plan[Planned]:
    rule = recurrence.parse(definition.rule)
    timeline = zones.timeline(rule, definition.name)
    coming = tick.changed(timeline, row.next_key if row else None, row.last_key if row else None, now)
    incarnation = row.incarnation if row else new_id()
    body = definition.body if keys is None else keys.seal(incarnation, definition.type, definition.body)
    due = coming.due if coming else None
    yield from schedules.put(
        {
            "name": definition.name,
            "incarnation": incarnation,
            "origin": origin,
            "digest": digest(definition) if origin == "code" else None,
            "rule": definition.rule,
            "type": definition.type,
            "body": body,
            "headers": definition.headers,
            "stream": definition.stream,
            "subject": definition.subject,
            "queue": definition.queue,
            "misfire": definition.misfire,
            "overlap": definition.overlap,
            "cap": definition.cap,
            "max_late": definition.max_late,
            "grace": definition.grace,
            "zones": data_of(rule),
            "next_key": coming.key if coming else None,
            "next_at": due,
            "declared_at": now if origin == "code" else None,
        },
        wakes=due is not None and due < now + SOON,
    )
    return Planned(definition.name, coming.key if coming else None, due)


def declare(definitions: Sequence[Definition], keys: Keys | None) -> Plan[list[str]]:
    """Store those of an application's code that are new or changed; returns their names."""
    found = {row.name: row for row in (yield from schedules.named([each.name for each in definitions]))}
    fresh = []
    for each in sorted(definitions, key=lambda each: each.name):
        row = found.get(each.name)
        if row is None or row.origin != "code" or row.digest != digest(each):
            yield from put(each, keys, "code")
            fresh.append(each.name)
    yield from schedules.declared([each.name for each in definitions])
    return fresh


def drop(name: str) -> Plan[bool]:
    """Drop a schedule that was set at run time. False: there was none."""
    row = yield from schedules.hold(name)
    if row is None:
        return False
    if row.origin == "code":
        raise UsageError(
            f"Schedule {name!r} is in the code of an application, which would store it again: remove it there, and "
            f"then `holdfast schedules drop {name}`."
        )
    return (yield from schedules.drop(name))


def step_of(row: Stored, decided: Tick) -> Step:
    """What is stored of a decision that fires nothing."""
    return Step(
        row.name,
        row.version,
        decided.next.key if decided.next else None,
        decided.look_at,
        decided.last_key,
        row.zones,
        notes=notes_of(decided),
    )


def notes_of(decided: Tick) -> tuple[Note, ...]:
    return tuple(note_of(each) for each in decided.left_out)


def note_of(left: LeftOut) -> Note:
    return Note(left.first.key, left.last.key, left.count, left.why.value)


def resume(name: str) -> Plan[tuple[Note, ...]]:
    """Fire a schedule again. Occurrences that fell due while it was paused are left out, with a note."""
    row = yield from found(name)
    if row.paused_at is None and row.error is None:
        raise Refused(f"Schedule {name!r} is not paused: nothing was changed.")
    timeline = timeline_of(row)
    # Of one that had failed, its misfire policy decides which are fired.
    if row.next_key is None or row.paused_at is None:
        owed = None if row.next_key is None else timeline.from_key(row.next_key)
        due = None if owed is None else owed.due
        yield from schedules.resume(Step(name, row.version, row.next_key, due, row.last_key, row.zones))
        return ()
    decided = tick.leave_out(timeline, row.next_key, row.last_key, row.now, Why.PAUSED)
    step = step_of(row, decided)
    yield from schedules.resume(step)
    return step.notes


def skip(name: str) -> Plan[Note]:
    """Leave out the next occurrence, with a note."""
    row = yield from found(name)
    if row.next_key is None:
        raise Refused(f"Schedule {name!r} has no next occurrence: its rule has ended.")
    timeline = timeline_of(row)
    coming = timeline.from_key(row.next_key)
    if coming is not None and row.last_key is not None and coming.key <= row.last_key:
        coming = timeline.following(row.last_key)
    if coming is None:
        raise Refused(f"Schedule {name!r} has no next occurrence: its rule has ended.")
    step = step_of(row, tick.leave_out(timeline, row.next_key, row.last_key, coming.due, Why.SKIPPED))
    if row.paused_at is not None:
        step = step._replace(next_at=None)
    yield from schedules.apply([step])
    return step.notes[-1]


def found(name: str) -> Plan[Stored]:
    """The schedule, locked; NotFound with what to do."""
    row = yield from schedules.hold(name)
    if row is None:
        raise NotFound(f"There is no schedule {name!r}: `holdfast schedules list` shows all.")
    return row


def _other_origin(row: Stored) -> str:
    if row.origin == "code":
        return (
            f"Schedule {row.name!r} is declared in the code of an application, so it cannot be set at run time: "
            "take another name."
        )
    return (
        f"Schedule {row.name!r} was set at run time, so it cannot be declared in code: take another name, or "
        f"`holdfast schedules drop {row.name}`."
    )
