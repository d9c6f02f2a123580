"""A worker's bookkeeping, without asyncio: what it holds, what to ask for, what to hand in, when to give up.

Work comes in lanes. A lane is what one lease covers: a message of its own, or a run of a stream, whose messages are
started one after another. A lane is *ready* until a handler is free for it, *running* until it is empty. What ended
is handed in with the next report, the prefix of a run as soon as it is there; the lease then moves to the next.

A worker holds what it can run at once and what it will need within a moment at the pace it has: slow handlers hoard
nothing, fast ones are never out of work. Time (`now`) is monotonic and an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil

from ..settings import Settings
from ..work import Batch, Leased, Report, Settlement, Want
from .delivery import give_back
from .ordering import rest_of_run

HORIZON = 0.25  # seconds of work to hold beyond what runs
FULL_SCAN = 0.25  # seconds after which a watermark is forgotten once, to find what was committed late


@dataclass(slots=True)
class Lane:
    """What one lease covers: the fence, and the messages that are not settled yet, in order."""

    claimed: int  # the seq of the head it was claimed with
    queue: str
    fence: tuple[int, int]
    waiting: deque[Leased]
    leased_until: float
    running: Leased | None = None
    started_at: float = 0.0
    ended: list[Settlement] = field(default_factory=list)
    lost: bool = False
    timeout_told: bool = False

    @property
    def following(self) -> Leased | None:
        """The first message that stays when what ended is settled."""
        return self.running or (self.waiting[0] if self.waiting else None)


@dataclass(slots=True)
class Pace:
    """What is known about one queue: its limit, what is held of it, and how fast it goes."""

    limit: int
    held: int = 0
    running: int = 0
    ended: int = 0
    rate: float = 0.0
    run: float = 1.0  # messages that a head brings, on average
    after: tuple[datetime, int] | None = None
    scanned_at: float = float("-inf")
    ready: deque[Lane] = field(default_factory=deque)
    patience: int = 1  # full batches to wait before fewer heads are tried again
    full_batches: int = 0

    def expect_run(self, run: float, full: bool, longest: int) -> None:
        """Learn how many messages a head brings. A batch full of heads hides it: now and then, ask for fewer heads."""
        if not full:
            if run < self.run:
                self.patience = min(self.patience * 2, 64)
            self.run, self.full_batches = max(1.0, run), 0
            return
        self.full_batches += 1
        if run > 1.5 or self.full_batches >= self.patience:
            self.patience = 1 if run > 1.5 else self.patience
            self.run, self.full_batches = min(float(longest), max(self.run, run) * 2), 0


class Pacing:
    """The worker as a value that changes: told what happens, it says what to do next."""

    def __init__(self, limits: Mapping[str, int], settings: Settings, *, quarantine: bool = False) -> None:
        self.settings = settings
        self.quarantine = quarantine
        self.paces = {queue: Pace(limit) for queue, limit in limits.items()}
        self.lanes: dict[int, Lane] = {}  # by `claimed`
        self.stopping = False
        self.held = 0
        self._touched: dict[int, Lane] = {}  # lanes with something to hand in
        self._measured_at = 0.0
        self._first = 0  # where the next report begins in the list of queues: all get their turn

    # -- asking

    @property
    def has_results(self) -> bool:
        return bool(self._touched)

    @property
    def idle(self) -> bool:
        return not self.lanes and not self._touched

    def report(self, worker: int, now: float, *, peek: bool = False, asleep: bool | None = None) -> Report:
        """What to hand in and what to ask for now."""
        self._measure(now)
        settlements, moves = self._hand_in()
        wants = [] if self.stopping else self._wants(now)
        return Report(
            worker=worker,
            settlements=settlements,
            moves=moves,
            want=wants,
            total=max(0, min(self.settings.claim, 2 * self.settings.claim - self.held)) if wants else 0,
            lease=self.settings.lease,
            run=self.settings.run,
            bytes_max=self.settings.claim_bytes,
            suspects=self.quarantine,
            peek=peek,
            asleep=asleep,
        )

    def _wants(self, now: float) -> list[Want]:
        if self.quarantine:
            return [] if self.lanes else [Want(queue, 1) for queue in self.paces]
        names = list(self.paces)
        self._first = (self._first + 1) % max(1, len(names))
        wants = []
        for queue in names[self._first :] + names[: self._first]:
            pace = self.paces[queue]
            room = pace.limit + ceil(pace.rate * HORIZON) - pace.held
            if room <= 0:
                continue
            if now - pace.scanned_at > FULL_SCAN:
                pace.after, pace.scanned_at = None, now
            heads = max(1, min(self.settings.claim, ceil(room / pace.run)))
            wants.append(Want(queue, heads, pace.after))
        return wants

    def _measure(self, now: float) -> None:
        passed = now - self._measured_at
        if passed < HORIZON:
            return
        weight = 1.0 if passed > 4 * HORIZON else 0.5
        for pace in self.paces.values():
            pace.rate += weight * (pace.ended / passed - pace.rate)
            pace.ended = 0
        self._measured_at = now

    def _hand_in(self) -> tuple[list[Settlement], list[tuple[int, int]]]:
        settlements: list[Settlement] = []
        moves: list[tuple[int, int]] = []
        for claimed, lane in self._touched.items():
            settlements += (self.stamped(lane, settlement) for settlement in lane.ended)
            lane.ended = []
            following = lane.following
            if following is None:
                del self.lanes[claimed]
            else:
                moves.append((lane.fence[0], following.message.seq))
                lane.fence = (following.message.seq, following.epoch)
        self._touched = {}
        return settlements, moves

    def stamped(self, lane: Lane, settlement: Settlement) -> Settlement:
        """The settlement under the lease that covers its lane now."""
        leased, (run, epoch) = settlement.leased, lane.fence
        if leased.run == run:
            return settlement
        return replace(settlement, leased=replace(leased, run=run, run_epoch=epoch))

    # -- receiving

    def receive(self, report: Report, batch: Batch, asked_at: float) -> None:
        """Take work in. The lease is measured from before it was asked for: never longer than the store's."""
        until = asked_at + self.settings.lease
        for leased in batch.work:
            run = leased.run
            lane = self.lanes.get(run)
            if lane is None:
                lane = Lane(run, leased.message.queue, (run, leased.run_epoch), deque(), until)
                self.lanes[run] = lane
                self.paces[lane.queue].ready.append(lane)
            lane.waiting.append(leased)
            self.paces[lane.queue].held += 1
        self.held += len(batch.work)
        if not self.quarantine:
            self._learn(report, batch)

    def _learn(self, report: Report, batch: Batch) -> None:
        heads: dict[str, int] = {}
        messages: dict[str, int] = {}
        for leased in batch.work:
            queue = leased.message.queue
            messages[queue] = messages.get(queue, 0) + 1
            heads[queue] = heads.get(queue, 0) + (leased.run == leased.message.seq)
        full = len(batch.work) >= report.total
        for want in report.want:
            pace, found = self.paces[want.queue], heads.get(want.queue, 0)
            if found:
                ordered = any(w.message.position is not None for w in batch.work if w.message.queue == want.queue)
                pace.expect_run(messages[want.queue] / found, full and ordered, self.settings.run)
            # Fewer than asked for: everything was seen, so the next look costs little and begins at the beginning.
            pace.after = batch.marks.get(want.queue) if found >= want.heads else None

    def starts(self) -> Iterator[Lane]:
        """Lanes for which there is a handler free now."""
        for pace in self.paces.values():
            while pace.ready and pace.running < pace.limit:
                lane = pace.ready.popleft()
                if lane.lost or not lane.waiting:
                    continue
                pace.running += 1
                yield lane

    # -- running a lane

    def begin(self, lane: Lane, now: float) -> Leased | None:
        """The next message of a lane, which starts now; None when the lane is empty or no longer ours."""
        if lane.lost or not lane.waiting:
            self.paces[lane.queue].running -= 1
            return None
        lane.running = lane.waiting.popleft()
        lane.started_at, lane.timeout_told = now, False
        return lane.running

    def end(self, lane: Lane, settlement: Settlement | None) -> None:
        """The message that ran has ended. None: the lease is lost, nothing of it counts."""
        lane.running = None
        self._count_out(lane, 1)
        if settlement is None:
            self.lose(lane)
            return
        if lane.lost:
            return
        self._add(lane, settlement)
        if lane.waiting and (self.stopping or rest_of_run(settlement) == "give back"):
            self._drop_rest(lane)

    def take_ended(self, lane: Lane) -> list[Settlement]:
        """What has ended before the running message, for one who settles it together with that one."""
        self._touched.pop(lane.claimed, None)
        ended, lane.ended = [self.stamped(lane, settlement) for settlement in lane.ended], []
        return ended

    def restore_ended(self, lane: Lane, ended: list[Settlement]) -> None:
        """That transaction came to nothing: what had ended is handed in as usual."""
        if ended and not lane.lost:
            lane.ended = ended + lane.ended
            self._touched[lane.claimed] = lane

    def end_completed(self, lane: Lane) -> None:
        """The running message was settled by its handler, which moved the lease on."""
        lane.running = None
        self._count_out(lane, 1)
        self.paces[lane.queue].ended += 1
        if self.stopping:
            self._drop_rest(lane)
        if lane.waiting:
            following = lane.waiting[0]
            lane.fence = (following.message.seq, following.epoch)
        else:
            self.lanes.pop(lane.claimed, None)

    def _add(self, lane: Lane, settlement: Settlement) -> None:
        lane.ended.append(settlement)
        self.paces[lane.queue].ended += 1
        self._touched[lane.claimed] = lane

    def _drop_rest(self, lane: Lane) -> None:
        """The unstarted rest of a run goes back as it was: without a move the store forgets its lease."""
        self._count_out(lane, len(lane.waiting))
        lane.waiting.clear()

    def _count_out(self, lane: Lane, count: int) -> None:
        self.paces[lane.queue].held -= count
        self.held -= count

    # -- giving up

    def lose(self, lane: Lane) -> None:
        """The lease is another worker's: forget the lane; what runs is stopped by whoever runs it."""
        lane.lost = True
        self._drop_rest(lane)
        lane.ended = []
        self.lanes.pop(lane.claimed, None)
        self._touched.pop(lane.claimed, None)

    def lost(self, seqs: Iterable[int]) -> list[Lane]:
        """Lanes whose fence is among these; they are forgotten."""
        gone = set(seqs)
        lanes = [lane for lane in self.lanes.values() if lane.fence[0] in gone]
        for lane in lanes:
            self.lose(lane)
        return lanes

    def stop(self) -> None:
        """Ask for nothing more; what has not started goes back, attempts refunded."""
        self.stopping = True
        for claimed, lane in list(self.lanes.items()):
            if lane.running is None and lane.waiting:
                first = lane.waiting[0]
                self._drop_rest(lane)
                lane.ended.append(give_back(first))
                self._touched[claimed] = lane
            elif lane.waiting:
                self._drop_rest(lane)

    def overdue(self, now: float, timeouts: Mapping[str, float]) -> list[Lane]:
        """Lanes whose running message has used up its time; each is told once."""
        found = []
        for lane in self.lanes.values():
            if lane.running is not None and not lane.timeout_told and now - lane.started_at >= timeouts[lane.queue]:
                lane.timeout_told = True
                found.append(lane)
        return found

    def leases(self, now: float, timeouts: Mapping[str, float]) -> list[tuple[int, int]]:
        """What the heartbeat renews: everything held, but for handlers that have used up their time."""
        return [
            lane.fence
            for lane in list(self.lanes.values())
            if lane.running is None or now - lane.started_at < timeouts[lane.queue] + self.settings.lease
        ]

    def renewed(self, fences: Iterable[tuple[int, int]], asked_at: float) -> None:
        until = asked_at + self.settings.lease
        kept = set(fences)
        for lane in list(self.lanes.values()):
            if lane.fence in kept:
                lane.leased_until = max(lane.leased_until, until)

    def lapsed(self, now: float) -> list[Lane]:
        """Lanes whose lease has run out by our own clock without a renewal: stop them, somebody may have them."""
        lanes = [lane for lane in self.lanes.values() if now >= lane.leased_until]
        for lane in lanes:
            self.lose(lane)
        return lanes
