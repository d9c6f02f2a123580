"""What operators see of schedules: their states, what comes next and what was left out, as values and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from ..model.schedule import Note, Stored
from ..rules import recurrence
from ..rules.patterns import Rule
from ..rules.tick import SENTENCES, Why
from ..rules.wording import Upcoming, describe
from .results import clock

ScheduleWord = Literal["waiting", "due", "paused", "failed", "over", "orphaned"]
WORDS = ("waiting", "due", "paused", "failed", "over", "orphaned")
UNDECLARED = timedelta(minutes=5)  # this long after the last process with it in its code was seen


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule as an operator sees it. `next_at` is when a tick looks at it; None: paused, over or failed."""

    name: str
    state: ScheduleWord
    rule: str
    words: str  # the rule in English
    type: str
    queue: str | None
    stream: str | None
    subject: str | None
    origin: str
    misfire: str
    cap: int | None
    max_late: float | None
    grace: float
    overlap: str
    next_key: str | None
    next_at: datetime | None
    last_key: str | None
    last_at: datetime | None
    last_id: UUID | None
    fired: int
    left_out: int
    paused_at: datetime | None
    paused_why: str | None
    error: str | None
    declared_at: datetime | None
    created_at: datetime
    changed_at: datetime
    zones: str | None
    incarnation: UUID


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Occurrences that did not fire, a range with both ends included, and why."""

    at: datetime | None
    first: str
    last: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Next:
    """An occurrence to come: its key, its moment, the local time, and a note if clocks change."""

    key: str
    at: datetime
    due: datetime
    local: str
    note: str | None


@dataclass(frozen=True, slots=True)
class ScheduleDossier:
    """A schedule, what comes next, and what was left out."""

    state: ScheduleState
    next: tuple[Next, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Backfilled:
    """A backfill: how many occurrences the range has, how many were published, how many ids were in use."""

    name: str
    count: int
    first: str | None
    last: str | None
    published: int
    in_use: int
    is_rehearsal: bool


def reason(why: str) -> str:
    """Why something was left out, as a sentence."""
    try:
        return SENTENCES[Why(why)]
    except ValueError:
        return f"{why}: a message with the id of the occurrence is there"


def left_out_sentence(note: Note) -> str:
    what = f"occurrence {note.first_key} was" if note.count == 1 else (
        f"{note.count:,} occurrences from {note.first_key} to {note.last_key} were"
    )  # fmt: skip
    return f"{what[0].upper()}{what[1:]} left out: {reason(note.why)}."


def state_of(row: Stored, now: datetime, live: bool) -> ScheduleState:
    return ScheduleState(
        name=row.name, state=_word(row, now, live), rule=row.rule, words=_words(row.rule), type=row.type,
        queue=row.queue, stream=row.stream, subject=row.subject, origin=row.origin, misfire=row.misfire, cap=row.cap,
        max_late=row.max_late, grace=row.grace, overlap=row.overlap, next_key=row.next_key, next_at=row.next_at,
        last_key=row.last_key, last_at=row.last_at, last_id=row.last_id, fired=row.fired, left_out=row.left_out,
        paused_at=row.paused_at, paused_why=row.paused_why, error=row.error, declared_at=row.declared_at,
        created_at=row.created_at, changed_at=row.changed_at, zones=row.zones, incarnation=row.incarnation,
    )  # fmt: skip


def _word(row: Stored, now: datetime, live: bool) -> ScheduleWord:
    if row.error is not None:
        return "failed"
    if row.paused_at is not None:
        return "paused"
    if row.next_at is None:
        return "over"
    declared = row.declared_at is not None and row.declared_at > now - UNDECLARED
    if row.origin == "code" and live and not declared:
        return "orphaned"
    return "due" if row.next_at <= now else "waiting"


def _words(rule: str) -> str:
    try:
        return describe(recurrence.parse(rule))
    except Exception:  # a rule of a later release or of a manual change: the schedule shows its error
        return rule


def sentence(state: ScheduleState, now: datetime) -> str:
    lead = f"Schedule {state.name}"
    match state.state:
        case "failed":
            return (
                f"{lead} cannot fire: {state.error} Correct it and set it again, or `holdfast schedules resume "
                f"{state.name}`."
            )
        case "paused":
            because = f" ({state.paused_why})" if state.paused_why else ""
            since = clock(state.paused_at, now)
            return f"{lead} is paused since {since}{because}: `holdfast schedules resume {state.name}`."
        case "over":
            return f"{lead} has no next occurrence: its rule has ended."
        case "orphaned":
            return (
                f"{lead} is orphaned: no worker that runs has it in its code, so it is not fired. "
                f"`holdfast schedules drop {state.name}` ends it."
            )
        case "due":
            since = clock(state.next_at, now)
            return f"{lead} is due since {since}: a worker fires it at its next tick; without one it waits."
        case _:
            return f"{lead} waits for {state.next_key}, at {clock(state.next_at, now)}."


def next_of(found: Sequence[Upcoming], rule: Rule) -> Sequence[Next]:
    return [
        Next(
            each.occurrence.key,
            each.occurrence.at,
            each.occurrence.due,
            f"{each.local:%Y-%m-%d %H:%M} {rule.zone}",
            each.note,
        )
        for each in found
    ]
