"""Schedules as they are stored, and what a tick decides about them, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

Origin = Literal["code", "call"]
Policy = Literal["all", "latest", "skip"]  # what happens to occurrences that were missed
Overlap = Literal["allow", "queue", "skip", "replace"]  # one is due before the last has ended
CAP = 100  # occurrences that are fired late, at most, unless a schedule says otherwise
GRACE = 60.0  # seconds; an occurrence is late after that, unless a schedule says otherwise
NAME_MAX = 190  # characters; a stream `schedule/NAME` must be possible

# Headers of an occurrence's message.
SCHEDULE, KEY, LOCAL, AT = "holdfast-schedule", "holdfast-occurrence", "holdfast-local", "holdfast-at"
HEADERS = (SCHEDULE, KEY, LOCAL, AT)


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule as it is given: checked, with the body as JSON text that is not sealed."""

    name: str
    rule: str  # canonical
    type: str
    body: str
    headers: str | None
    stream: str | None
    subject: str | None
    queue: str | None
    misfire: Policy
    cap: int | None
    max_late: float | None
    grace: float
    overlap: Overlap


class Stored(NamedTuple):
    """A row of the table."""

    name: str
    incarnation: UUID
    origin: str
    digest: str | None
    rule: str
    type: str
    body: str
    headers: str | None
    stream: str | None
    subject: str | None
    queue: str | None
    misfire: Policy
    overlap: Overlap
    cap: int | None
    version: int
    max_late: float | None
    grace: float
    zones: str | None
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
    now: datetime  # the database's time when it was read


class Due(NamedTuple):
    """The fields of a due schedule that a tick needs.

    Its decision depends on the fields from `rule` to `last` alone.
    """

    name: str
    version: int
    incarnation: bytes
    zones: str | None
    type: str
    body: str
    headers: str | None
    stream: str | None
    subject: str | None
    queue: str | None
    last_id: str | None
    rule: str
    misfire: Policy
    overlap: Overlap
    cap: int | None
    max_late: float | None
    grace: float
    next_key: str | None
    last_key: str | None
    last: int | None  # the state of the last message, if that matters: 1 waits, 2 was started


class DueNow(NamedTuple):
    """Schedules that are due, the oldest first; the database's time; when the last of them is due."""

    rows: list[Due]
    now: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Note:
    """A range of occurrences that were left out."""

    first_key: str
    last_key: str
    count: int
    why: str
    at: datetime | None = None


class Fired(NamedTuple):
    """The message of an occurrence, to be stored."""

    id: str
    type: str
    body: str
    stream: str | None
    subject: str | None
    headers: str | None
    due: datetime
    queue: str | None
    name: str  # of the schedule
    key: str


class Step(NamedTuple):
    """The decision of a tick about one schedule: where it continues, what it fires and what it leaves out."""

    name: str
    version: int  # as it was seen
    next_key: str | None
    next_at: datetime | None
    last_key: str | None
    zones: str | None
    fires: tuple[Fired, ...] = ()
    notes: tuple[Note, ...] = ()
    left_out: tuple[str, ...] = ()  # the ranges left out, in sentences: for the log
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule that was set: which occurrence is next, and when. None: there is no more."""

    name: str
    key: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Which occurrence of a schedule a message is: `ctx.occurrence`.

    `key` is always the same for one occurrence: the local date, the local date and time, or the moment. `local` is the
    local time, `2026-03-29 03:00 Europe/Berlin`. A trigger has the key `trigger`.
    """

    name: str
    key: str
    local: str
    at: datetime


def occurrence_of(headers: dict[str, Any]) -> Occurrence | None:
    """The occurrence that a message with these headers is; None: it does not come from a schedule."""
    if SCHEDULE not in headers:
        return None
    try:
        at = datetime.fromisoformat(str(headers[AT]))
        return Occurrence(str(headers[SCHEDULE]), str(headers[KEY]), str(headers[LOCAL]), at)
    except (KeyError, ValueError):  # written by other software
        return None
