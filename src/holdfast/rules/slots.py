"""How many run at once on all machines: slots, of which every worker holds some.

The holders are stored in one small row that all workers share. A worker takes slots when all of its own are in use, as
many again each time, and gives them back when it does not use them. So there is no write per message, and none while
nothing changes. A slot is valid as long as its worker's heartbeat is seen: the slots of a dead worker are free when it
is reported dead, at the latest when its lease ends.

Workers that drain the same queues need not be fair to each other: while one has unused slots, there is no work for the
others either. A *rival* is a worker that waits for a slot and drains something else: other queues, or suspects. While
there is one, no worker takes more than its share, idle slots are given back, and if there are fewer slots than workers
they are held in turns.

Time (`now`) is monotonic and an argument; ages are by the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

BELIEVED = 1.0  # seconds for which a worker believes what it read
IDLE, IDLE_ALONE = 1.0, 10.0  # seconds that unused slots are kept, with a rival and without
TURN = 1.0  # seconds that a slot is held while rivals wait and there are too few
PAUSE_MIN, PAUSE_MAX = 0.02, 1.0  # between two tries when all are taken


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker and its slots; with none it waits for one. It is alive if it was seen within its lease."""

    worker: int
    held: int
    lease: float
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotShare:
    """What a worker got: it holds `held` slots. Above `fair` it begins nothing new, and gives back what ends."""

    holders: tuple[Holder, ...]
    held: int
    fair: int
    rivals: bool
    crowded: bool  # fewer slots than workers that want one


def share(
    holders: Iterable[Holder], ages: Mapping[int, float], me: Holder, wants: int, count: int
) -> SlotShare:
    """Take up to `wants` slots of `count`, or give some back. The `me.held` slots are in use and stay in any case."""
    others = [
        each for each in holders if each.worker != me.worker and ages.get(each.worker, inf) < each.lease
    ]
    rivals = any(not each.held and not set(each.queues) <= set(me.queues) for each in others)
    fair = min(wants, max(0, count - sum(each.held for each in others)))
    if rivals:
        fair = min(fair, max(1, count // (len(others) + 1)))
    held = max(me.held, fair)
    # Waiting is stored only if another worker drains something else: only such a worker must know.
    is_news = wants > 0 and any(not set(me.queues) <= set(each.queues) for each in others)
    mine = [Holder(me.worker, held, me.lease, me.queues)] if held or is_news else []
    crowded = rivals and count < len(others) + 1
    return SlotShare((*others, *mine), held, fair, rivals, crowded)


@dataclass(slots=True)
class SlotHand:
    """The slots of one worker. From how many messages run and how many leases are held it says how many it wants."""

    count: int
    most: int  # the most that this worker could use
    held: int = 0
    fair: int = 0
    rivals: bool = False
    crowded: bool = False
    good_until: float = -inf
    since: float = inf  # when it began to hold any
    busy_at: float = -inf  # when all of them were last in use
    looked_at: float = -inf
    look_at: float = -inf  # the store is not asked before this, except to give some back
    pause: float = PAUSE_MIN

    def has_any(self, now: float) -> bool:
        """Whether this worker holds a slot, even if it may not be used while a request is in flight."""
        return self.held > 0 and now < self.good_until

    def at_once(self, now: float) -> int:
        """How many may run here."""
        return min(self.fair, self.held) if now < self.good_until else 0

    def wants(self, running: int, leases: int, now: float) -> int:
        """How many slots it should hold."""
        if self.crowded and self.held and now - self.since >= TURN:
            return 0
        if leases >= self.held:
            self.busy_at = now
            return min(self.count, max(1, self.most), max(1, 2 * self.held))
        if now - self.busy_at < (IDLE if self.rivals else IDLE_ALONE):
            return self.held
        return max(running, 0 if self.rivals else 1)

    def is_due(self, running: int, leases: int, now: float) -> bool:
        """Whether to ask the store now."""
        if now - self.looked_at >= BELIEVED:
            return now >= self.look_at
        wants = self.wants(running, leases, now)
        if wants > self.held:
            return now >= self.look_at
        return max(wants, running) < self.held

    def ask(self, running: int, now: float) -> None:
        """A request is in flight: it names the running slots, and the answer may leave this worker only those.

        If it is not answered, the next one waits longer.
        """
        self.fair, self.look_at = min(self.fair, running), now + self.pause
        self.pause = min(2 * self.pause, PAUSE_MAX)

    def learn(self, got: SlotShare, wanted: int, good_for: float, asked_at: float) -> None:
        """Process the store's answer. A grant is valid as long as the worker's lease was when it asked."""
        if got.held and not self.held:
            self.since = asked_at
        if wanted <= got.fair:
            self.look_at, self.pause = asked_at, PAUSE_MIN
        if not wanted and not got.held:  # it was another worker's turn, or there was nothing to do
            self.look_at, self.since = asked_at + PAUSE_MAX / 4, inf
        self.held, self.fair = got.held, got.fair
        self.rivals, self.crowded = got.rivals, got.crowded
        self.looked_at, self.good_until = asked_at, asked_at + good_for
