"""What a worker and a store exchange: leases, settlements, a report and the batch that answers it.

Objects that are made for each message are msgspec Structs: making a frozen dataclass costs fourteen times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

import msgspec

from .message import Message, NewMessage, Reason


class Leased(msgspec.Struct, frozen=True, gc=False):
    """A message that a worker holds.

    `epoch` fences earlier holders; `attempt` is the number of this hand-over, from 1.
    `run` and `run_epoch` name the lease that covers it: its own, unless it follows another
    message in a run of its stream.
    """

    message: Message
    epoch: int
    attempt: int
    run: int
    run_epoch: int

    @property
    def token(self) -> tuple[int, int]:
        """The lock token: what every write by the holder carries."""
        return (self.message.seq, self.epoch)


class Unfit(Leased, frozen=True, gc=False):
    """A row that could not be read: its readable parts, and the reason. It is settled, never started."""

    why: str = ""


class Outcome(StrEnum):
    """What happens to a message when an attempt has ended."""

    DONE = "done"  # leaves for the history
    AGAIN = "again"  # pending: claimable after `delay`
    RELEASE = "release"  # pending, leaves the order of its stream, nothing else changes
    DEAD = "dead"  # moves to the dead letters
    CANCELLED = "cancelled"  # leaves for the history without having been handled


class Delta(msgspec.Struct, frozen=True):
    """Rows that a settlement writes to another table, through one of the store's appliers.

    They are applied in the commit of the settlement, if its lease is still valid, else not at all. If the database
    refuses them, only that message fails; one in a run makes the settlements of the run a unit, which is never split.
    """

    applier: str  # `apply_NAME`: a statement on SQLite, a function on PostgreSQL
    rows: tuple[Mapping[str, object], ...]  # what JSON can hold


class Guess(msgspec.Struct, frozen=True):
    """The next turn of the instance that waits for an activity, run ahead by the worker that ended it.

    It is stored with the activity's end if nothing waits in the stream of the instance, and if that stands where its
    worker believed: at the turn before this one, stored with the mark `was`. Else the answer is sent.
    """

    answer: NewMessage  # into the stream of the instance; the turn names it as what it consumed
    was: str
    turn: Mapping[str, object]  # a row for `apply_turns`
    emits: tuple[NewMessage, ...]  # of the turn: unordered, without dedupe keys


class Left(msgspec.Struct, frozen=True):
    """What the death of a message stores besides the result of the rules; see `handlers.consumer.EndsMore`."""

    delta: Delta | None = None
    emits: tuple[NewMessage, ...] = ()
    halts: bool = True  # False: its stream continues in any case


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended.

    Made by `rules.delivery.conclude` only; the store applies it if the lease is still valid.
    """

    leased: Leased
    outcome: Outcome
    delay: float = 0.0  # seconds from the database's now
    flags: int = 0  # added to the status, never removed
    failed: bool = False  # counts as a failure
    counted: bool = True  # the hand-over counts as an attempt; False refunds it
    refunded: bool = False  # a refund made by the engine; their number is limited
    started: bool = True  # the handler had begun: the message came back, so it is no longer a suspect
    aside: bool = False  # leaves the order of its stream (policy `available`)
    halt: bool = False  # a dead head stops its stream (policy `halt`)
    pause: str | None = (
        None  # AGAIN alone: it keeps its place, and nothing of its stream is handed out until resumed
    )
    poison: bool = False  # it was started as often as allowed, or cannot be read
    reason: Reason | None = None  # of the failure or death
    last_reason: Reason | None = None  # of the failure that led to a death
    error: str | None = None
    emits: tuple[NewMessage, ...] = ()
    delta: Delta | None = None
    guess: Guess | None = None  # its answer is not among `emits`
    copy: UUID | None = (
        None  # which of them is a copy of the message: with keys, `endings.sealed` seals it again
    )
    ran: float = 0.0  # seconds between the start of the handler and its end
    fingerprint: str | None = None  # of the error that led to a death: the same for deaths of one cause
    traceback: str | None = None  # of the error, masked and bounded: added by `endings.concluded`


INSTANCE = "instance: "  # the beginning of the reason for which the stream of a paused or suspended instance is halted

Mark = tuple[datetime, int]  # when a head became claimable, and its seq


class Want(msgspec.Struct, frozen=True):
    """What a worker can take from one queue now: a number of heads, each of which may bring a run with it."""

    queue: str
    heads: int
    after: Mark | None = None  # watermark: heads at or before it are not searched
    run: int | None = None  # the most messages of one stream; None: as many as the report says


class Look(msgspec.Struct, frozen=True):
    """A worker asks which queues of a family have work: those below its name, behind `after`."""

    family: str
    after: str | None = None
    count: int | None = None  # None: all
    without: tuple[str, ...] = ()  # queues whose suspects are not wanted


class Found(NamedTuple):
    """What a look found: queues with something claimable, the last one passed if there are more, seconds it took."""

    queues: tuple[str, ...] = ()
    last: str | None = None
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The results that a worker hands in, and the work that it asks for.

    `moves` names runs whose settled prefix ends here and whose rest continues: (head's seq, seq of the next).
    A run that is settled without a move is given back.
    """

    worker: int
    settlements: Sequence[Settlement] = ()
    moves: Sequence[tuple[int, int]] = ()
    want: Sequence[Want] = ()
    looks: Sequence[Look] = ()
    total: int = 0
    lease: float = 30.0
    run: int = 50
    bytes_max: int = 8 * 1024 * 1024
    suspects: bool = False  # the quarantine asks for one suspect and nothing else
    peek: bool = False  # also return when the next message falls due
    asleep: bool | None = None  # None: leave the flag as it is
    now: datetime | None = None  # tests only


class Share(NamedTuple):
    """The part of a batch that is from one queue, known before the batch is read."""

    messages: int
    heads: int  # the other messages follow in runs
    ordered: bool  # whether any of them has a place in a stream
    bytes: int  # of their bodies


@dataclass(frozen=True, slots=True)
class TurnItem:
    """A run of messages of an orchestration's instance, for a worker written by hand, with all that a turn needs."""

    instance: str
    orchestration_name: str
    version: str
    execution_id: int
    history: tuple[str, ...]  # the rows of its journal, as JSON
    messages: tuple[Leased, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a worker receives."""

    now: datetime
    work: Sequence[Leased] = ()  # may not be unpacked yet
    shares: Mapping[str, Share] = field(default_factory=dict)  # how much of it is from each queue
    looked: float = 0.0  # seconds that the store took to find it
    found: Mapping[str, Found] = field(default_factory=dict)  # what the looks found, family by family
    lost: frozenset[int] = frozenset()  # seqs of settlements whose lease was no longer ours
    next_due: datetime | None = None
    marks: dict[str, Mark] = field(default_factory=dict)  # queue -> when and which the last head was
    suspects: bool = False  # a suspect waits for the quarantine (known after a peek)
    turns: Sequence[TurnItem] = ()  # of orchestrations' queues; only for workers written by hand
    paused: frozenset[str] = frozenset()  # queues of which nothing is handed out to any worker


class Ticked(NamedTuple):
    """The result of one step of a tick: how many things, when the next one falls due, and which queues got messages.

    `next_at` is None if nothing waits. A time that has passed says that more is due now. `queues`: those that got
    messages which became claimable in the past. `lost`: another worker did the same at the same time, and was first.
    """

    did: int
    now: datetime  # the database's time
    next_at: datetime | None = None
    queues: tuple[str, ...] = ()
    lost: bool = False
