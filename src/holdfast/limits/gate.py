"""How much a worker may begin of each queue: as much as the queue's breaker, rate, slots and catch-up allow.

A worker asks for no more than that, so nothing is claimed just to be refused. Messages that were claimed and may no
longer begin go back unchanged. All answers come from memory; `look` refreshes it, once in a worker's turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ..clock import Clock
from ..errors import StoreUnavailable
from ..model.limits import Door, Rate, SharedRate, SharedSlots
from ..model.names import RESERVED_PREFIX
from ..rules.catchup import CatchUp, catch_up
from ..rules.lanes import Pace
from ..rules.rate import Hand
from ..rules.slots import Holder, SlotHand, SlotShare, share
from ..store import Store
from ..store.plans import breakers, slots
from ..store.plans.slots import Holders
from ..telemetry.logs import Log
from .breakers import Breaker

LOOKS_EVERY = 1.0  # seconds between looks, at most

log = Log("holdfast.worker")


@dataclass(slots=True)
class Recovering:
    """A catch-up: how long ago an outage ended, and the tokens for what may begin since then."""

    name: str
    slope: CatchUp
    passed: Callable[[float], float | None]  # seconds since the outage ended; None: there was none
    hand: Hand

    def active(self, now: float) -> Hand | None:
        """The tokens to use; None: no limit."""
        passed = self.passed(now)
        rate = None if passed is None else self.slope.rate(passed)
        if rate is None:
            return None
        self.hand.rate = rate
        return self.hand


class Gate:
    """The breakers, rates and slots of a worker's queues, and their catch-ups after an outage."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        paces: Mapping[str, Pace],
        lease: float = 30.0,
        quarantine: bool = False,
    ) -> None:
        self.store, self.clock, self.lease = store, clock, lease
        self.paces = paces  # what this worker holds of each queue
        self.breakers: dict[str, Breaker] = {}
        self.doors: dict[str, Door] = {}
        self.rates: dict[str, str] = {}  # queue -> name of its rate; the same for the slots
        self.hands: dict[str, Hand] = {}
        self.slots: dict[str, str] = {}
        self.limits: dict[str, SlotHand] = {}
        self.catch_ups: dict[str, list[Recovering]] = {}
        self.worker = 0  # its number, by which slots are held
        self.is_leaving = False  # unused slots are given back
        self.waits = False  # a worker that ends when nothing is due waits for tokens and slots
        self._sharing: dict[str, list[str]] = {}  # name of slots -> the queues that use them
        # Besides its queues: suspects, which no other worker takes.
        self._drains = (SUSPECTS,) if quarantine else ()
        self._ended: dict[str, float] = {}  # by queue: when an outage of the queue itself ended
        self._paused: frozenset[str] = frozenset()

    def meet(
        self,
        queue: str,
        breaker: Breaker | None = None,
        rate: SharedRate | None = None,
        slots: SharedSlots | None = None,
        catch_up: CatchUp | None = None,
        door: Door | None = None,
        like: str | None = None,
    ) -> None:
        """From now on this queue is served, under these limits. `like`: its family, whose outages count for it too."""
        if like in self._ended:
            self._ended.setdefault(queue, self._ended[like])
        if breaker is not None:
            self.breakers[queue] = breaker
            self._catch_up_after(queue, breaker)
        if door is not None:
            self.doors[queue] = door
            back = _recovering(f"relay/{queue}", catch_up or AFTER_AWAY, door.back_for)
            self.catch_ups.setdefault(queue, []).append(back)
        if rate is not None:
            self.rates[queue] = rate.name
            self.hands.setdefault(rate.name, Hand(rate.rate))
        if slots is not None:
            self.slots[queue] = slots.name
            limit = self.limits.setdefault(slots.name, SlotHand(slots.count, 0))
            limit.most += self.paces[queue].limit.concurrency
            self._sharing.setdefault(slots.name, []).append(queue)
        if catch_up is not None:
            recovering = _recovering(f"queue/{queue}", catch_up, partial(self._since, queue))
            self.catch_ups.setdefault(queue, []).append(recovering)

    def _catch_up_after(self, queue: str, breaker: Breaker) -> None:
        slope = catch_up(breaker.policy.catch_up, breaker.policy.catch_up_doubles)
        if slope is None:
            return
        name = f"breaker/{breaker.name}"
        known = (each for all_ in self.catch_ups.values() for each in all_ if each.name == CATCH_UP + name)
        shared = next(known, None) or _recovering(name, slope, breaker.circuit.closed_for)
        self.catch_ups.setdefault(queue, []).append(shared)

    def forget(self, queue: str) -> None:
        """This queue is no longer served: a queue of a family that has had no work for a while."""
        self.breakers.pop(queue, None)
        self.doors.pop(queue, None)
        self.catch_ups.pop(queue, None)
        rate, slots = self.rates.pop(queue, None), self.slots.pop(queue, None)
        if rate is not None and rate not in self.rates.values():
            del self.hands[rate]
        if slots is not None:
            self._sharing[slots].remove(queue)
            self.limits[slots].most -= self.paces[queue].limit.concurrency
            if not self._sharing[slots]:
                del self._sharing[slots], self.limits[slots]

    @property
    def is_needed(self) -> bool:
        """Whether any of the queues has a limit to refresh."""
        return bool(self.breakers or self.rates or self.slots or self.catch_ups or self.doors)

    # -- asking

    # Pacing must be answered from memory: no clock is read, nothing is written or logged, no user code runs.

    def allowed(self, queue: str, now: float) -> int | None:
        """How many messages of a queue may begin now; None: any number.

        A closed door stops new work. Messages that are held still begin, and end as unsent, which costs nothing:
        giving them back would use up one of their refunds, which are limited.
        """
        if queue in self.doors and not self.doors[queue].is_open():
            return 0
        rooms = [hand.has(now) for hand in self._hands(queue, now)]
        if queue in self.breakers and (room := self.breakers[queue].circuit.room(now)) is not None:
            rooms.append(room)
        return min(rooms, default=None)

    def refuses(self, queue: str, now: float) -> bool:
        """Whether nothing of a queue begins before its breaker changes."""
        return queue in self.breakers and self.breakers[queue].circuit.room(now) == 0

    def admits(self, queue: str, now: float) -> bool:
        """Whether one message of a queue may begin now; if so, it uses up a token of each of its rates."""
        if self.refuses(queue, now):
            return False
        hands = self._hands(queue, now)
        return all(hand.has(now) for hand in hands) and all(hand.use(now) for hand in hands)

    def at_once(self, queue: str, now: float) -> int | None:
        """How many leases of a queue may run at once: the number of slots that are held. None: any number."""
        return None if queue not in self.slots else self.limits[self.slots[queue]].at_once(now)

    def has_token(self, queue: str, now: float) -> bool:
        """Whether there is a token in hand of each rate of a queue."""
        return all(hand.has(now) for hand in self._hands(queue, now))

    def has_slot(self, queue: str, now: float) -> bool:
        """Whether another lease of a queue may get a handler."""
        if queue not in self.slots:
            return True
        name = self.slots[queue]
        return self._count(name)[0] < self.limits[name].at_once(now)

    @property
    def waits_for_slots(self) -> bool:
        """Whether this worker has no slot of a limit: then it does not know yet whether there is work."""
        return any(not limit.has_any(self.clock.monotonic()) for limit in self.limits.values())

    def is_shut(self, queue: str, now: float) -> bool:
        """Whether nothing of a queue may be requested, and a look would not change that now."""
        if self.refuses(queue, now) or (queue in self.doors and not self.doors[queue].is_open()):
            return True
        if self.waits:
            return False
        if any(not hand.has(now) and not hand.need(now) for hand in self._hands(queue, now)):
            return True
        name = self.slots.get(queue)
        if name is None or self.limits[name].at_once(now):
            return False
        return not self.limits[name].is_due(*self._count(name), now)

    def _hands(self, queue: str, now: float) -> list[Hand]:
        hands = [self.hands[self.rates[queue]]] if queue in self.rates else []
        for each in self.catch_ups.get(queue, ()):
            if (hand := each.active(now)) is not None:
                hands.append(hand)
        return hands

    def _count(self, name: str) -> tuple[int, int]:
        """The leases of all queues that use these slots: those that run, and all."""
        counts = [self.paces[queue].lanes for queue in self._sharing[name]]
        return sum(running for running, _ in counts), sum(held for _, held in counts)

    # -- outages of the queues themselves

    def heard_paused(self, paused: frozenset[str]) -> None:
        """These queues are paused now. For a queue that was paused and no longer is, an outage has just ended."""
        for queue in self._paused - paused:
            self._ended[queue] = self.clock.monotonic()
        self._paused = paused

    def _since(self, queue: str, now: float) -> float | None:
        ended = self._ended.get(queue)
        return None if ended is None else now - ended

    async def begin(self, worker: int, queues: Iterable[str], back_for: float | None = None) -> None:
        """This worker has its number. For a queue that no worker served until now, an outage has just ended.

        `back_for`: seconds since a worker was back after an outage that is not over. Then workers that start together
        share the tokens, though only the first of them found none.
        """
        self.worker = worker
        bounded = [
            queue for queue in queues if any(r.name.startswith(QUEUES) for r in self.catch_ups.get(queue, ()))
        ]
        if not bounded:
            return
        seen = await self.store.arun(slots.ages())
        others = [queues for number, (age, queues) in seen.items() if number != worker and age < self.lease]
        now = self.clock.monotonic()
        for queue in bounded:
            if not any(queue in each for each in others):
                self._ended[queue] = now
            elif back_for is not None:
                self._ended[queue] = now - back_for

    # -- looking

    @property
    def pause(self) -> float:
        """Seconds after which to refresh, even if nothing happens meanwhile."""
        now = self.clock.monotonic()
        empty = [hand.look_at - now for _, hand in self._all_hands(now) if not hand.has(now)]
        waits = [hand.look_at - now for hand in self.limits.values() if not hand.fair]
        return max(0.0, min([LOOKS_EVERY, *empty, *waits]))

    def _all_hands(self, now: float) -> list[tuple[str, Hand]]:
        found = dict(self.hands)
        for all_ in self.catch_ups.values():
            found |= {each.name: hand for each in all_ if (hand := each.active(now)) is not None}
        return list(found.items())

    async def look(self) -> None:
        """Read breakers again that were read a while ago, and take tokens and slots where none are left."""
        looking = [each for each in (breaker.circuit.look() for breaker in self.breakers.values()) if each]
        if looking:
            done, _ = await asyncio.wait([asyncio.wrap_future(each) for each in looking], timeout=LOOKS_EVERY)
            for each in done:
                each.result()
        for name, hand in self._all_hands(self.clock.monotonic()):
            wanted = hand.need(self.clock.monotonic())
            if wanted:
                hand.take(await self._take(name, hand.rate, wanted), self.clock.monotonic())
        for name, limit in list(self.limits.items()):
            running, leases = self._count(name)
            if limit.is_due(running, leases, self.clock.monotonic()) or (
                self.is_leaving and limit.held > running
            ):
                await self._share(name, limit, running, leases)

    async def _take(self, name: str, rate: Rate, wanted: int) -> int:
        try:
            return await self.store.arun(breakers.take(name, wanted, rate.per_second, rate.burst))
        except StoreUnavailable as error:
            log.warning("rate.unknown", "No tokens for the rate %(rate)s: %(error)s", rate=name, error=error)
            return 0

    async def _share(self, name: str, limit: SlotHand, running: int, leases: int) -> None:
        asked_at = self.clock.monotonic()
        wants = running if self.is_leaving else limit.wants(running, leases, asked_at)
        limit.ask(running, asked_at)
        mine = sorted(self._sharing[name])
        me = Holder(self.worker, running, self.lease, (*mine, *self._drains))
        got: SlotShare | None = None
        age = self.lease

        def decide(holders: Holders, ages: Mapping[int, float]) -> Holders:
            nonlocal got, age
            got = share([Holder(*each) for each in holders], ages, me, wants, limit.count)
            age = ages.get(me.worker, self.lease)
            return [(each.worker, each.held, each.lease, each.queues) for each in got.holders]

        try:
            done = await self.store.arun(slots.change(name, decide))
        except StoreUnavailable as error:
            log.warning("slots.unknown", "No slots of %(slots)s: %(error)s", slots=name, error=error)
            return
        if age >= self.lease:
            text = "this worker had no heartbeat within its lease"
            log.warning("slots.unknown", "No slots of %(slots)s: %(error)s", slots=name, error=text)
        if not done:
            text = "other workers kept changing them"
            log.warning("slots.unknown", "No slots of %(slots)s: %(error)s", slots=name, error=text)
        if done and got is not None:
            limit.learn(got, wants, self.lease - age, asked_at)


# For a queue that is sent to another system, after a long time without a connection.
AFTER_AWAY = CatchUp(500.0)
CATCH_UP = f"{RESERVED_PREFIX}catch-up/"
QUEUES = f"{CATCH_UP}queue/"
SUSPECTS = f"{RESERVED_PREFIX}suspects"


def _recovering(name: str, slope: CatchUp, passed: Callable[[float], float | None]) -> Recovering:
    first = slope.rate(0.0)
    assert first is not None
    return Recovering(f"{CATCH_UP}{name}", slope, passed, Hand(first))
