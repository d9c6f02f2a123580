"""The results that an operator sees: frozen, without presentation. Every instant has a time zone: UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

from ..errors import UsageError
from ..model.failure import STARTS_SPENT
from ..model.message import Death, Flag, Reason, Trouble

T = TypeVar("T")

State = Literal[
    "waiting", "ready", "scheduled", "retrying", "parked", "leased", "suspect", "unrouted", "blocked"
]
STATES: tuple[State, ...] = (
    "ready", "leased", "waiting", "blocked", "scheduled", "retrying", "parked", "suspect", "unrouted",
)  # fmt: skip
BLOCKING = ("parked", "suspect", "retrying", "scheduled")  # states of a head that block its stream
OPERATOR = "operator: "  # begins `halted_by` of a stream that was halted by hand


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages or dead letters; a field that is None does not filter. `reason` is that of the last failure.

    The fields from `died_of` on are for dead letters: the reason of the death itself, the cause, when it died, a text
    in one of its errors, whether it was redriven before, and whether it is held.
    """

    queue: str | None = None
    type: str | None = None
    stream: str | None = None
    state: str | None = None
    reason: int | None = None
    id: UUID | None = None
    died_of: int | None = None
    fingerprint: str | None = None
    died_before: datetime | None = None
    died_after: datetime | None = None
    text: str | None = None
    redriven: bool | None = None
    held: bool | None = None
    ids: tuple[UUID, ...] | None = None
    subject: str | None = None  # the whole subject, or its beginning: Submission/*

    def __post_init__(self) -> None:
        for name, value in (("died_before", self.died_before), ("died_after", self.died_after)):
            if value is not None and value.tzinfo is None:
                raise UsageError(f"{name}={value} needs a time zone: {value.isoformat()}+00:00 for UTC.")
        if self.state is not None and self.state not in STATES:
            raise UsageError(f"There is no state {self.state!r}; there are: {', '.join(STATES)}.")

    @property
    def is_empty(self) -> bool:
        return all(getattr(self, field.name) is None for field in fields(self))


@dataclass(frozen=True, slots=True)
class Delivery:
    """A pending message in one queue. `claimable_at` is None while it is parked, `queue` while nobody subscribes."""

    seq: int
    id: UUID
    queue: str | None
    type: str
    state: State
    stream: str | None
    position: int | None  # None: out of the order of its stream
    head: bool
    subject: str | None
    status: int
    epoch: int
    attempts: int
    failures: int
    vanished: int
    refunds: int
    redrives: int
    reason: Reason | None
    created_at: datetime
    due_at: datetime | None
    deadline: datetime | None
    claimable_at: datetime | None
    target: str | None  # of a scheduled message
    worker: str | None
    until: datetime | None  # of the lease that covers it
    error: str | None

    @property
    def has_failed(self) -> bool:
        return bool(self.status & Flag.FAILED)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. `seq` is its number, which differs from that of others with its id in its queue.

    `halts`: its stream is halted until it is redriven or the stream is resumed.
    """

    id: UUID
    queue: str
    type: str
    stream: str | None
    position: int | None
    subject: str | None
    status: int
    epoch: int
    attempts: int
    failures: int
    vanished: int
    refunds: int
    redrives: int
    reason: Reason
    last_reason: Reason | None
    worker: str | None
    created_at: datetime
    due_at: datetime | None
    deadline: datetime | None
    died_at: datetime
    fingerprint: str | None  # the same for deaths of one cause
    held_at: datetime | None
    held_why: str | None
    stored_at: datetime | None  # when it was imported or restored
    error: str | None
    halts: bool
    seq: int = 0

    @property
    def starts(self) -> int:
        """How often its handler may have started: not counting the attempt that only gave it up."""
        return self.attempts - (self.error or "").startswith(STARTS_SPENT)


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one cause. `id` and `error` are those of the newest."""

    fingerprint: str | None
    queue: str
    type: str
    reason: Reason
    count: int
    held: int
    first_at: datetime
    last_at: datetime
    id: UUID
    error: str | None


@dataclass(frozen=True, slots=True)
class Deaths:
    """How many messages of a queue died within a time, including those redriven or discarded since."""

    queue: str
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a redrive would do: how many it redrives, how many are held and stay, and their causes."""

    count: int
    held: int
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Canary:
    """The outcome of the canary: the few that were redriven first."""

    tried: int
    ended: int
    died: int
    pending: int

    @property
    def is_well(self) -> bool:
        return self.ended == self.tried


@dataclass(frozen=True, slots=True)
class Redriven:
    """How many were redriven. If the canary failed, the others stayed dead letters."""

    changed: int
    canary: Canary | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A line of history: how a delivery ended."""

    queue: str
    type: str
    stream: str | None
    subject: str | None
    outcome: str
    ended_at: datetime
    started_at: datetime | None
    due_at: datetime
    attempts: int
    failures: int
    status: int
    why: str | None = None  # what an operator said, or where it was archived
    origin: str | None = None  # of what came through an inbox: its sender's source and id there


@dataclass(frozen=True, slots=True)
class Content:
    """What a message carries, as JSON text, its error history, its last traceback, and all its deaths."""

    body: str
    headers: str | None
    dedupe: str | None
    errors: tuple[Trouble, ...]
    deaths: tuple[Death, ...] = ()
    traceback: str | None = None  # of the last failure


@dataclass(frozen=True, slots=True)
class EndedMessage:
    """A line of history, with the message that it is about.

    `lateness`: seconds between due and the start of its last attempt; None: it was never started. `outage`: the number
    of the outage in which it was late, if it was due before a worker was back.
    """

    id: UUID
    queue: str
    type: str
    subject: str | None
    stream: str | None
    outcome: str
    ended_at: datetime
    started_at: datetime | None
    due_at: datetime
    attempts: int
    failures: int
    status: int
    why: str | None
    lateness: float | None = None
    outage: int | None = None


@dataclass(frozen=True, slots=True)
class Dossier:
    """Everything that is known about a message."""

    id: UUID
    pending: tuple[tuple[Delivery, Content], ...]
    dead: tuple[tuple[Letter, Content], ...]
    ended: tuple[Ended, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What a command did to one delivery."""

    id: UUID
    queue: str | None
    what: str


@dataclass(frozen=True, slots=True)
class Many:
    """The result of a command about many: how many it changed, and which were refused and why."""

    changed: int
    refused: tuple[Changed, ...] = ()


@dataclass(frozen=True, slots=True)
class Emptied:
    """The result of moving or dropping a queue. `ended`: discarded, or the other queue has them already.

    `over`: how many of those had already ended in the other queue. `taken`: how many became dead letters there,
    because another message has their id.
    """

    queue: str
    moved: int
    ended: int
    unsubscribed: tuple[str, ...]
    over: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many messages, pending and dead, failed for this reason the last time."""

    reason: Reason
    pending: int
    dead: int

    @property
    def count(self) -> int:
        return self.pending + self.dead


@dataclass(frozen=True, slots=True)
class RetryBacklog:
    """Failed messages that wait for a retry in the future."""

    count: int
    next_at: datetime | None
    latest_at: datetime | None


@dataclass(frozen=True, slots=True)
class Stuck:
    """A message in a retry loop. `same_reason`: all failures that are still known had the same reason."""

    delivery: Delivery
    failing_since: datetime | None
    failed_at: datetime | None
    same_reason: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the doctor noticed, and what to do about it."""

    severity: Literal["error", "warning", "note"]
    name: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Action:
    """A command of an operator. `target`: a message's id, a stream, a breaker; None: what matches `filter`, or a queue.

    `count` is how many were changed, `ids` the first of them.
    """

    number: int
    at: datetime
    who: str
    action: str
    queue: str | None
    target: str | None
    count: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    why: str | None
    filter: Mapping[str, Any] | None
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Housekept:
    """The result of a round of housekeeping."""

    recovered: int
    adopted: int
    history: int
    dedupe: int
    streams: int
    workers: int
    deaths: int = 0
    redriven: int = 0  # dead letters, by the recovery policies of their handlers
    archived: int = 0  # dead letters
    audit: int = 0
    alerts: int = 0
    instances: int = 0  # of orchestrations
    outages: int = 0
    notes: int = 0  # on what schedules left out
    requests: int = 0
    more: bool = False  # the time was too short: more is left to remove


@dataclass(frozen=True, slots=True)
class RaisedSequence:
    """A sequence that was raised: of messages, positions, workers, the audit or news."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did. `streams`: those (queue, stream) in which messages were put back in order."""

    raised: tuple[RaisedSequence, ...]
    streams: tuple[tuple[str, str], ...]


# -- for sentences


def lasting(seconds: float) -> str:
    """A length of time for a sentence.

    >>> [lasting(60 * minutes) for minutes in (8, 119, 180, 3_621_386)]
    ['8 minutes', '119 minutes', '3 hours', '2,515 days']
    """
    for unit, length in (("days", 86_400), ("hours", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def clock(instant: datetime | None, at: datetime) -> str:
    """An instant for a sentence: without the date if it is today's."""
    if instant is None:
        return "no time"
    return f"{instant:%H:%M:%S} UTC" if instant.date() == at.date() else f"{instant:%Y-%m-%d %H:%M:%S} UTC"
