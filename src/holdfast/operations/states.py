"""The state of streams, queues, workers and subscriptions, as an operator sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ..model.message import Reason
from .results import BLOCKING, Delivery, Letter, State


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream and its head. `head` is None while it is halted."""

    queue: str
    stream: str
    open: int
    halted_by: str | None  # the id of a dead letter, or "operator: " and why
    halted_at: datetime | None
    head: UUID | None
    type: str | None
    state: State | None  # of the head
    claimable_at: datetime | None
    attempts: int
    failures: int
    reason: Reason | None
    error: str | None
    failed_at: datetime | None
    worker: str | None
    until: datetime | None
    newest_at: datetime | None  # when the newest message in its order was stored
    created_at: datetime | None  # of the head

    @property
    def is_blocked(self) -> bool:
        return self.halted_by is not None or self.state in BLOCKING

    @property
    def waiting(self) -> int:
        """How many wait behind the head, or behind the halt."""
        return self.open - (self.head is not None)

    @property
    def since(self) -> datetime | None:
        """Since when it is blocked, if that is known."""
        if not self.is_blocked:
            return None
        return self.halted_at or self.failed_at or self.created_at

    @property
    def is_growing(self) -> bool:
        """Whether messages have arrived since it is blocked."""
        return self.since is not None and self.newest_at is not None and self.newest_at > self.since


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """The messages of a stream: those in its order first, in order, then those out of it."""

    state: StreamState | None
    messages: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class Blocking:
    """What blocks a stream: its head, or the dead letter that halts it. `is_poison`: many attempts have failed."""

    stream: StreamState
    delivery: Delivery | None
    letter: Letter | None
    is_poison: bool


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker. `is_alive`: it was seen within the time of a lease."""

    id: int
    name: str
    started_at: datetime
    seen_at: datetime
    age: float  # seconds since it was seen
    queues: tuple[str, ...]
    asleep: bool
    stopping: bool
    leases: int
    is_alive: bool


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue. `is_orphaned`: no live worker takes from it, and the application has no handler for it.

    Without an application: some worker is alive but none takes from it, or no subscription leads to it either.
    """

    name: str
    states: Mapping[str, int]
    depth: int
    oldest_at: datetime | None  # since when the oldest due message waits
    dead: int
    paused_at: datetime | None
    paused_why: str | None
    subscriptions: tuple[str, ...]
    workers: tuple[str, ...]
    is_orphaned: bool
    renamed_to: str | None = None  # the queue to which workers move its messages
    more: tuple[str, ...] = ()  # states that were counted up to a limit: there are at least so many


@dataclass(frozen=True, slots=True)
class Subscription:
    """A queue gets messages of a type or prefix. `pattern` None: an old name of a handler that was renamed.

    `is_orphaned`: no live worker takes from the queue, and no handler of the application has it.
    """

    queue: str
    pattern: str | None
    renamed_to: str | None
    depth: int
    workers: tuple[str, ...]
    is_orphaned: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """A queue that gets no new messages any more: its former subscriptions, and its new name if it was renamed."""

    queue: str
    patterns: tuple[str, ...]
    renamed_to: str | None


@dataclass(frozen=True, slots=True)
class Unrouted:
    """A type without a subscriber, and the messages that wait for one."""

    type: str
    count: int
    oldest_at: datetime
