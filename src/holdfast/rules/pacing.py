"""A worker's bookkeeping, without asyncio: what it holds, what to ask for, what to hand in, when to give up.

Work comes in lanes. A lane is what one lease covers: a single message, or a run of a stream, whose messages are started
one after another. A lane is *ready* until a handler is free for it, then *running* until it is empty. Results are
handed in with the next report, also when only the first part of a run has ended; the lease then moves to the next
message.

A worker holds what it can run at once and what it will need in the next moment at its pace: slow handlers prefetch
nothing, fast ones do not run out of work. Time (`now`) is monotonic and an argument.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from math import inf
from types import MappingProxyType

from ..model.work import Batch, Leased, Report, Settlement, Want
from .asking import Admission, Asking, Holding, Wishes
from .delivery import give_back, goes_alone
from .lanes import HORIZON, PARTS, Completion, Fence, Lane, Limit, Pace, stamped
from .ordering import rest_of_run

NO_KEYS: Mapping[Fence, Hashable] = MappingProxyType({})


class Pacing:
    """The state of a worker: its methods record what happened, and return what to do next."""

    def __init__(
        self,
        limits: Mapping[str, Limit],
        settings: Holding,
        *,
        quarantine: bool = False,
        gate: Admission | None = None,
        patient: bool = True,
        paces: dict[str, Pace] | None = None,
    ) -> None:
        self.settings, self.gate = settings, gate
        self.patient = patient  # messages without a token wait for one
        self.quarantine = quarantine  # ask for one suspect at a time, and for nothing else
        self.paces: dict[str, Pace] = {} if paces is None else paces  # shared with the gate
        self.asking = Asking(self.paces, settings, gate)
        for queue, limit in limits.items():
            self.asking.meet(queue, limit)
        self.lanes: dict[Fence, Lane] = {}  # by `claimed`
        self.paused: frozenset[str] = frozenset()
        self.stopping = False
        self.held = 0
        self.held_bytes = 0
        self._touched: dict[Fence, Lane] = {}  # lanes with something to hand in
        self.flight: list[Lane] = []  # lanes with something in flight
        self._arrived: list[tuple[Batch, float]] = []  # counted as held, not unpacked into lanes yet
        self._measured_at = 0.0
        self._asked_at = -inf

    @property
    def has_results(self) -> bool:
        return bool(self._touched)

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    @property
    def asks_in_vain(self) -> bool:
        """Whether an exchange now has nothing to hand in and nothing to take: what came is begun first.

        The messages of a stream behind a run that is held here cannot be claimed before that run is handed in.
        """
        return self.asking.took_all and not self._touched

    @property
    def idle(self) -> bool:
        return not self.lanes and not self._arrived

    # -- asking

    def report(
        self,
        worker: int,
        now: float,
        *,
        claim: bool = True,
        anew: bool = False,
        peek: bool = False,
        asleep: bool | None = None,
    ) -> Report:
        """What to hand in and, unless `claim` is false, what to ask for now. `anew`: ignore the watermarks."""
        self._measure(now)
        settlements, moves = self._hand_in()
        wants, total, looks = self._wants(now, anew) if claim and not self.stopping else ([], 0, [])
        if not settlements and not looks and self._can_wait(wants, now):
            wants = []
        elif wants:
            self._asked_at = now
        return Report(
            worker=worker,
            settlements=settlements,
            moves=moves,
            want=wants,
            looks=looks,
            total=total,
            lease=self.settings.lease,
            bytes_max=self.settings.claim_bytes - self.held_bytes,
            suspects=self.quarantine,
            peek=peek,
            asleep=asleep,
        )

    def _wants(self, now: float, anew: bool) -> Wishes:
        """The queues to ask, the most messages in total, and the families to look through."""
        if self.quarantine:
            return self.asking.suspect(now) if self.idle else ([], 0, [])
        total = min(self.settings.claim, 2 * self.settings.claim - self.held)
        if total <= 0 or self.held_bytes >= self.settings.claim_bytes:
            return [], 0, []
        return self.asking.wants(total, now, anew)

    def forgettable(self) -> list[str]:
        """Queues of families that hold and run nothing, and in which nothing was found for a while."""
        if not (idle := self.asking.quiet()):
            return idle
        busy = {lane.queue for lane in self.lanes.values()}
        return [each for each in idle if each not in busy and not self.paces[each].running]

    def _can_wait(self, wants: list[Want], now: float) -> bool:
        """Whether to ask a little later, when nothing is to be handed in: handlers settle their messages themselves.

        An exchange for each such message would cost more than its handler.
        """
        return now - self._asked_at < HORIZON / PARTS and all(self.paces[each.queue].lasts for each in wants)

    def _measure(self, now: float) -> None:
        passed = now - self._measured_at
        if passed < HORIZON:
            return
        for pace in self.paces.values():
            pace.measure(passed, weight=1.0 if passed > 4 * HORIZON else 0.5)
        self._measured_at = now

    def _hand_in(self) -> tuple[list[Settlement], list[tuple[int, int]]]:
        settlements: list[Settlement] = []
        moves: list[tuple[int, int]] = []
        for lane in self._touched.values():
            fence = lane.fences[-1]
            # Messages claimed with a lane have its lease already.
            lane.handed = lane.ended if fence is lane.claimed else stamped(fence, lane.ended)
            lane.ended = []
            settlements += lane.handed
            if (lane.running or lane.waiting) and (following := lane.following) is not None:
                moves.append((fence[0], following.message.seq))
                lane.fences = (fence, (following.message.seq, following.epoch))
        self.flight, self._touched = list(self._touched.values()), {}
        return settlements, moves

    # -- receiving

    def receive(self, report: Report, batch: Batch, asked_at: float) -> list[Lane]:
        """Process the answer and return the lanes whose lease is lost. The messages are held, and not unpacked yet.

        The lease is counted from the time of the request, so it never ends later than the store's.
        """
        lost = self._land(batch.lost)
        self._count(batch, 1)
        self.held += len(batch.work)
        if batch.work:
            self._arrived.append((batch, asked_at + self.settings.lease))
        if not self.quarantine:
            self.asking.learn(report, batch, asked_at)
        self.paused = batch.paused
        if self.paused:
            for lane in list(self.lanes.values()):
                if lane.queue in self.paused:
                    self.close(lane)
        return lost

    def _count(self, batch: Batch, sign: int) -> None:
        for queue, share in batch.shares.items():
            self.paces[queue].held += sign * share.messages
            self.held_bytes += sign * share.bytes

    def arrived(self) -> Iterator[Leased]:
        """Messages that arrived and are not unpacked, of queues with a limit per key."""
        for batch, _ in self._arrived:
            if any(self.paces[queue].limit.per_key for queue in batch.shares):
                for leased in batch.work:
                    if self.paces[leased.message.queue].limit.per_key:
                        yield leased

    def unpack(self, keys: Mapping[Fence, Hashable] = NO_KEYS) -> None:
        """Unpack the messages that arrived into lanes. `keys` are those of `arrived`, by their lock tokens."""
        arrived, self._arrived = self._arrived, []
        lanes = self.lanes
        for batch, until in arrived:
            self._count(batch, -1)  # the store's count; from here on each message is counted
            only = self.paces[next(iter(batch.shares))] if len(batch.shares) == 1 else None  # mostly
            size = 0
            for leased in batch.work:
                claimed, message = (leased.run, leased.run_epoch), leased.message
                pace = only or self.paces[message.queue]
                pace.held += 1
                size += len(message.body)
                if pace.limit.per_key:
                    pace.waiting_keys[leased.token] = None if self.stopping else keys[leased.token]
                lane = lanes.get(claimed)
                if lane is not None:
                    lane.waiting.append(leased)
                    continue
                lanes[claimed] = lane = Lane(claimed, pace.queue, (claimed,), [leased], until)
                if pace.family is None:
                    pace.ready.append(lane)
                else:
                    pace.make_ready(lane)
            self.held_bytes += size
        if self.stopping or self.paused:
            for lane in list(self.lanes.values()):
                if self.stopping or lane.queue in self.paused:
                    self.close(lane)

    def _land(self, lost: frozenset[int]) -> list[Lane]:
        gone = []
        for lane in self.flight:
            lane.handed = ()
            if lost and lane.fences[0][0] in lost:
                # Otherwise its handler has settled them, or has newer state.
                if not lane.completing and not lane.lost:
                    self.lose(lane)
                    gone.append(lane)
            elif len(lane.fences) > 1:
                lane.fences = lane.fences[1:]
            elif not (lane.ended or lane.waiting or lane.running):
                self.lanes.pop(lane.claimed, None)
        self.flight = []
        return gone

    # -- running a lane

    def starts(self, now: float) -> Iterator[Lane]:
        """Lanes for which there is a handler free now."""
        self.unpack()
        for queue in self.asking.names:
            while (lane := self.next_lane(queue, now)) is not None:
                yield lane

    def next_lane(self, queue: str, now: float) -> Lane | None:
        """The next lane for a handler of this queue; one that serves a family takes its queues in turn."""
        pace = self.paces[queue]
        family = pace.family
        if family is None:
            return self._start(pace, now)
        if family.running >= family.concurrency:
            return None
        for _ in range(len(family.turns)):
            pace = self.paces[family.turns.popleft()]
            lane = self._start(pace, now)
            pace.in_turns = bool(pace.ready)
            if pace.ready:
                family.turns.append(pace.queue)
            if lane is not None:
                return lane
        return None

    def start(self, queue: str, now: float) -> Lane | None:
        """The next lane of a queue, if a handler is free for it."""
        return self._start(self.paces[queue], now)

    def _start(self, pace: Pace, now: float) -> Lane | None:
        limit, family = pace.limit, pace.family
        if pace.running >= limit.concurrency or (family is not None and family.running >= family.concurrency):
            return None
        while pace.ready:
            if self.gate is not None and not self._has_room(pace.queue, self.gate, now):
                return None
            lane = pace.ready.popleft()
            if lane.waiting and (not limit.per_key or pace.admit(lane)):
                pace.running += 1
                if family is not None:
                    family.running += 1
                return lane
        return None

    def _has_room(self, queue: str, gate: Admission, now: float) -> bool:
        if not gate.has_slot(queue, now):
            return False
        return not self.patient or gate.has_token(queue, now) or gate.refuses(queue, now)

    def begin(self, lane: Lane, now: float) -> Leased | None:
        """The next message of a lane, which starts now; None when the lane must give up its handler."""
        pace = self.paces[lane.queue]
        if not lane.waiting or (pace.limit.per_key and lane.key is None and not pace.admit(lane)):
            pace.free_handler(lane)
            return None
        if self.gate is not None and not self.gate.admits(lane.queue, now):
            # While its breaker is open it goes back. It waits here for a token, which comes soon: going back
            # and being claimed again a hundred times would count as attempts.
            if self.gate.refuses(lane.queue, now) or not self.patient:
                self.close(lane)
            else:
                pace.make_ready(lane, first=True)
            pace.free_handler(lane)
            return None
        lane.running = leased = lane.waiting.pop(0)
        if pace.limit.per_key:
            del pace.waiting_keys[leased.token]
        lane.started_at, lane.waits_since = now, None
        return leased

    def begin_run(self, lane: Lane, now: float, most: int, bytes_max: int) -> list[Leased]:
        """The next message of a lane and those behind it that fit in the same call; none: it must give up its handler.

        A message that has failed before is called alone.
        """
        head = self.begin(lane, now)
        if head is None:
            return []
        lane.along, size = [], len(head.message.body)
        if goes_alone(head) or self.paces[lane.queue].limit.per_key:
            return [head]
        for following in lane.waiting[: most - 1]:
            size += len(following.message.body)
            if size > bytes_max or goes_alone(following):
                break
            if self.gate is not None and not self.gate.admits(lane.queue, now):
                break
            lane.along.append(following)
        del lane.waiting[: len(lane.along)]
        return [head, *lane.along]

    def end(self, lane: Lane, settlement: Settlement | None, took: float | None = None) -> None:
        """Record that the running message has ended, and return the next of its run. None: the lease is lost.

        `took`: its share of the time of a call with many messages; default: the time that it ran.
        """
        ran = 0.0 if settlement is None else settlement.ran
        self._count_running_out(lane, ran if took is None else took)
        if settlement is None:
            self.lose(lane)
        if settlement is None or lane.lost:
            return
        lane.ended.append(settlement)
        self._touched[lane.claimed] = lane
        if not lane.waiting and not lane.along:
            return
        # Where one call takes a whole run, what is left of it needs what that call has stored.
        is_over = not lane.along and self.paces[lane.queue].limit.run > 1
        if is_over or rest_of_run(settlement) == "give back":
            self._drop_rest(lane)
        elif lane.along:
            lane.running = lane.along.pop(0)

    def _count_running_out(self, lane: Lane, ran: float) -> None:
        pace = self.paces[lane.queue]
        assert lane.running is not None
        pace.held -= 1
        pace.ended += 1
        pace.ran += ran
        if pace.busy is None:  # not measured yet: the first message alone may have been slow by accident
            pace.seconds = pace.ran / pace.ended
        self.held -= 1
        self.held_bytes -= len(lane.running.message.body)
        lane.running = lane.stop = None
        if lane.key is not None:
            pace.free_key(lane)

    def _drop_rest(self, lane: Lane) -> None:
        """Give the rest of a run back unchanged: without a move the store ends its lease."""
        self._let_go(lane, lane.along)
        self._let_go(lane, lane.waiting)

    def _let_go(self, lane: Lane, rest: list[Leased]) -> None:
        pace = self.paces[lane.queue]
        pace.held -= len(rest)
        if pace.limit.per_key:
            for leased in rest:
                pace.waiting_keys.pop(leased.token, None)
        self.held -= len(rest)
        self.held_bytes -= sum(len(leased.message.body) for leased in rest)
        rest.clear()

    # -- a handler that settles its message itself

    def open_completion(self, lane: Lane) -> Completion:
        """Its transaction also settles what ended before the running message, and moves the lease on."""
        self._touched.pop(lane.claimed, None)
        taken, lane.ended = lane.ended, []
        ways = [(fence, stamped(fence, taken)) for fence in lane.fences]
        if len(ways) > 1:
            # The exchange in flight may fail: then what it carries is settled here instead.
            ways[0] = (ways[0][0], [*lane.handed, *stamped(ways[0][0], taken)])
        completion = Completion(ways[::-1], lane.waiting[0] if lane.waiting else None, taken)
        if completion.after is not None:
            lane.fences = (*lane.fences, completion.after)
        lane.completing = True
        return completion

    def undo_completion(self, lane: Lane, completion: Completion) -> None:
        """That transaction was rolled back: the lease has not moved, and what had ended is handed in as usual."""
        lane.completing = False
        if completion.after is not None:
            lane.fences = lane.fences[:-1]
        if len(lane.fences) > 1 and lane not in self.flight:
            self.lose(lane)  # what was in flight came too late for the lease
        if completion.taken and not lane.lost:
            lane.ended = completion.taken + lane.ended
            self._touched[lane.claimed] = lane

    def complete(self, lane: Lane, completion: Completion, ran: float) -> None:
        """That transaction was committed."""
        self._count_running_out(lane, ran)
        lane.completing = False
        if lane.handed:  # what is still in flight was settled there, and will change nothing
            lane.handed = ()
            self.flight.remove(lane)
        if lane.lost:
            return
        if completion.following is None or completion.after is None:
            self.lanes.pop(lane.claimed, None)
            return
        lane.fences = (completion.after,)
        # The lane was closed meanwhile, and the lease moved to a message that was given back.
        if not lane.waiting:
            lane.ended = [give_back(completion.following)]
            self._touched[lane.claimed] = lane

    # -- giving up

    def stop(self) -> None:
        """Ask for nothing more; messages that have not started go back, with their attempts refunded."""
        self.stopping = True
        self.unpack()

    def close(self, lane: Lane) -> None:
        """Start nothing more of a lane: waiting messages go back unchanged."""
        if not lane.waiting:
            return
        first = lane.waiting[0]
        self._let_go(lane, lane.waiting)
        if lane.running is None and not lane.ended:
            lane.ended.append(give_back(first))
            self._touched[lane.claimed] = lane

    def lose(self, lane: Lane) -> None:
        """The lease is another worker's: forget the lane. The caller stops what runs."""
        lane.lost = True
        self._drop_rest(lane)
        lane.ended = []
        self.lanes.pop(lane.claimed, None)
        self._touched.pop(lane.claimed, None)
