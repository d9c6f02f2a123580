"""What a worker holds of each queue, and how fast it goes: lanes, their leases, and the pace of a queue.

A lane is what one lease covers: a message of its own, or a run of a stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, inf

import msgspec
from msgspec.structs import replace

from ..model.work import Leased, Mark, Settlement
from .families import Family

SHARE = 50  # messages of one stream in a batch, while there are others
HORIZON = 0.25  # seconds of work to hold beyond what runs
PARTS = 4  # of that time: a worker that has enough for one part asks once in it
LOOK_ANEW = 0.25  # seconds to go by a watermark before all is looked at again
# A slow look is made less often, but at least this often.
LOOK_ANEW_SHARE, LOOK_ANEW_MAX = 0.05, 5.0

Fence = tuple[int, int]  # the seq and the epoch of a lease


class Stop(Enum):
    """Why a running handler is stopped."""

    LOST = "lost"  # the lease is another worker's now
    LAPSED = "lapsed"  # it could not be renewed in time: another worker may have it
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # an operator asked for it
    GRACE = "grace"  # the worker is stopping, and the grace period is over


class Lane(msgspec.Struct, eq=False):
    """What one lease covers: the messages that are not settled yet, in order.

    `fences` has one lease, except for a moment: while an exchange that moves the lease is in flight, and while the
    handler settles in its own transaction, the worker does not know which of them the store has.
    """

    claimed: Fence
    queue: str
    fences: tuple[Fence, ...]
    waiting: list[Leased]  # mostly one: a deque costs ten times as much to make
    leased_until: float
    running: Leased | None = None
    along: list[Leased] = []  # messages behind it in the same call, if the consumer takes runs
    started_at: float = 0.0
    waits_since: float | None = (
        None  # it waits for a transaction: this time does not count towards its timeout
    )
    ended: list[Settlement] = []  # not handed in yet
    handed: Sequence[Settlement] = ()  # in flight
    key: Hashable = None
    stop: Stop | None = None
    lost: bool = False
    completing: bool = False

    def ran(self, now: float) -> float:
        """How long its handler has run, without the time it waited for the engine."""
        return (now if self.waits_since is None else self.waits_since) - self.started_at

    @property
    def following(self) -> Leased | None:
        """The first message that is left when those that ended are settled."""
        return self.running or (self.waiting[0] if self.waiting else None)

    def shorten(self, count: int) -> None:
        """Limit the call to this many messages of the run; the others wait."""
        self.waiting[:0] = self.along[count - 1 :]
        del self.along[count - 1 :]


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of a queue's handler: calls at once, seconds for each, and calls at once for one key."""

    concurrency: int
    timeout: float = inf
    ahead: bool = True  # prefetch beyond what runs; not where a crash would use up the only start
    per_key: int = 0  # 0: no limit
    run: int = 1  # messages of one stream that one call takes, whatever its pace


@dataclass(frozen=True, slots=True)
class Completion:
    """A handler settles its message in its own transaction, together with what ended before it in the lane.

    `ways` are the leases under which that can happen, the likeliest first, each with what else is settled then.
    """

    ways: list[tuple[Fence, list[Settlement]]]
    following: Leased | None
    taken: list[Settlement]

    @property
    def after(self) -> Fence | None:
        """The lease that covers the lane when that transaction has been committed."""
        return None if self.following is None else (self.following.message.seq, self.following.epoch)


@dataclass(slots=True)
class Pace:
    """What is known about one queue: its limit, what is held of it, and its pace."""

    limit: Limit
    queue: str = ""
    family: Family | None = None  # the family it belongs to
    in_turns: bool = False  # it waits for its turn in the family
    drained: bool = False  # it was empty when it was last asked; only for queues of a family
    held: int = 0
    running: int = 0
    ended: int = 0
    ran: float = 0.0  # total seconds of the messages that ended
    rate: float = 0.0
    seconds: float | None = None  # that a message takes, once known
    busy: float | None = None  # how many ran at once, on average, once known
    run: float = 1.0  # messages that a head brings, on average
    streams: int | None = None  # streams that had work when last asked, if there was room for more
    after: Mark | None = None
    looked_at: float = -inf  # when the whole queue was last searched, not only the part after the watermark
    # That search and the one before, because a single one may have been slow by accident.
    looks_took: tuple[float, float] = (0.0, 0.0)
    ready: deque[Lane] = field(default_factory=deque)
    # Of waiting messages, if there are limits per key.
    waiting_keys: dict[Fence, Hashable] = field(default_factory=dict)
    keys: dict[Hashable, int] = field(default_factory=dict)  # how many of each run
    barred: dict[Hashable, deque[Lane]] = field(default_factory=dict)  # lanes whose key is at its limit
    patience: int = 1  # full batches before fewer heads are tried again
    full_batches: int = 0

    def expect_run(self, run: float, full: bool, longest: int) -> None:
        """Learn how many messages a head brings. A batch full of heads does not show it, so sometimes ask for fewer."""
        if not full:
            if run < self.run:
                self.patience = min(self.patience * 2, 64)
            self.run, self.full_batches = max(1.0, run), 0
            return
        self.full_batches += 1
        if run > 1.5 or self.full_batches >= self.patience:
            self.patience = 1 if run > 1.5 else self.patience
            self.run, self.full_batches = min(float(longest), max(self.run, run) * 2), 0

    @property
    def look_pause(self) -> float:
        """How long to use the watermark before the whole queue is searched again for messages that were committed late.

        If dead rows cannot be removed, because a transaction holds an old snapshot, such a search reads all of them.
        """
        return min(max(LOOK_ANEW, min(self.looks_took) / LOOK_ANEW_SHARE), LOOK_ANEW_MAX)

    def watermark(self, now: float) -> Mark | None:
        return None if now - self.looked_at > self.look_pause else self.after

    def measure(self, passed: float, weight: float) -> None:
        self.rate += weight * (self.ended / passed - self.rate)
        if self.ended:
            self.seconds = self.ran / self.ended
            self.busy = self.ran / passed
        self.ended, self.ran = 0, 0.0

    @property
    def room(self) -> int:
        """How many more messages to hold: what can run at once, and what is needed for the next moment at this pace."""
        return self.limit.concurrency + self.need - self._usable

    @property
    def _usable(self) -> int:
        """Messages that run or can begin when a handler is free, without those that wait for others of their key."""
        return self.held - sum(len(lane.waiting) for lanes in self.barred.values() for lane in lanes)

    @property
    def need(self) -> int:
        """How many messages end within a moment."""
        # The rate of one handler is known after the first message, the rate of all only after a while.
        return max(ceil(self.rate * HORIZON), self.longest_run - 1) if self.limit.ahead else 0

    @property
    def lasts(self) -> bool:
        """Whether all handlers are busy and enough work waits for a part of a moment."""
        return bool(self.ready) and (self._usable - self.running) * PARTS >= self.need

    @property
    def useful_lanes(self) -> int:
        """How many lanes to have at once, however long their runs: twice what ran at once, so that it can grow."""
        free = self.limit.concurrency - self.running
        return free if self.busy is None else min(free, ceil(2 * self.busy))

    def run_max(self, total: int, most: int) -> int:
        """How many messages of one stream to take: many streams get a share each, a few share all the room."""
        shared = SHARE if self.streams is None else max(SHARE, ceil(total / self.streams))
        if self.limit.run > 1:
            return min(self.limit.run, shared)
        return min(self.longest_run, shared, most)

    @property
    def longest_run(self) -> int:
        """How many messages one handler ends within a moment; nothing is prefetched before that is known."""
        if self.seconds is None or not self.limit.ahead:
            return 1
        return 1 + int(HORIZON / max(self.seconds, 1e-6))

    # -- handlers

    def free_handler(self, lane: Lane) -> None:
        """A lane gives up its handler, and its key if it has one."""
        if lane.key is not None:
            self.free_key(lane)
        self.running -= 1
        if self.family is not None:
            self.family.running -= 1

    def make_ready(self, lane: Lane, *, first: bool = False) -> None:
        """A lane waits for a handler; in a family its queue waits for its turn."""
        if self.family is not None and not self.in_turns:
            self.in_turns = True
            self.family.turns.append(self.queue)
        if first:
            self.ready.appendleft(lane)
        else:
            self.ready.append(lane)

    @property
    def lanes(self) -> tuple[int, int]:
        """How many leases have a handler, and how many are held."""
        waiting = sum(1 for lane in self.ready if lane.waiting)
        barred = sum(1 for lanes in self.barred.values() for lane in lanes if lane.waiting)
        return self.running, self.running + waiting + barred

    # -- keys

    def admit(self, lane: Lane) -> bool:
        """Let the next message of a lane begin, or bar the lane until another message of the same key has ended."""
        key = self.waiting_keys[lane.waiting[0].token]
        running = self.keys.get(key, 0)
        if key is not None and running >= self.limit.per_key:
            self.barred.setdefault(key, deque()).append(lane)
            return False
        lane.key = key
        if key is not None:
            self.keys[key] = running + 1
        return True

    def free_key(self, lane: Lane) -> None:
        key, lane.key = lane.key, None
        if key is None:
            return
        self.keys[key] -= 1
        barred = self.barred.get(key)
        if barred:
            self.make_ready(barred.popleft(), first=True)
        if not barred:
            self.barred.pop(key, None)
        if not self.keys[key]:
            del self.keys[key]


def stamped(fence: Fence, settlements: Sequence[Settlement]) -> list[Settlement]:
    """The settlements under the lease that covers their lane now."""
    return [
        each
        if (each.leased.run, each.leased.run_epoch) == fence
        else replace(each, leased=replace(each.leased, run=fence[0], run_epoch=fence[1]))
        for each in settlements
    ]
