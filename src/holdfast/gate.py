"""What a worker may begin of each queue: as much as the queue's breaker and its rate allow.

A worker asks for no more than that, so nothing is claimed just to be refused, and what was claimed and may not begin
any more goes back untouched. Everything here is said from memory; `look` refreshes it, once in a worker's turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from .breakers import Breaker
from .clock import Clock
from .errors import StoreUnavailable
from .logs import Log
from .rules.rate import Hand, Rate
from .store import Store, breaker_plans

LOOK = 1.0

log = Log("holdfast.worker")


@dataclass(frozen=True, slots=True)
class SharedRate:
    """A rate with a name: whoever uses the same name shares it, on all machines."""

    name: str
    rate: Rate


class Gate:
    """The breakers and rates of a worker's queues."""

    def __init__(
        self, store: Store, clock: Clock, breakers: Mapping[str, Breaker], rates: Mapping[str, SharedRate]
    ) -> None:
        self.store, self.clock = store, clock
        self.breakers = dict(breakers)
        self.rates = {queue: shared.name for queue, shared in rates.items()}
        self.hands = {shared.name: Hand(shared.rate) for shared in rates.values()}

    @property
    def is_needed(self) -> bool:
        """Whether any of the queues has a breaker or a rate."""
        return bool(self.breakers or self.rates)

    def allowed(self, queue: str) -> int | None:
        """How many messages of a queue may begin now; None: any number."""
        rooms = []
        if queue in self.breakers:
            rooms.append(self.breakers[queue].circuit.room())
        if queue in self.rates:
            rooms.append(self.hands[self.rates[queue]].has(self.clock.monotonic()))
        return min((room for room in rooms if room is not None), default=None)

    def admits(self, queue: str) -> bool:
        """Whether one message of a queue begins now; it uses up a token of its rate."""
        if queue in self.breakers and self.breakers[queue].circuit.room() == 0:
            return False
        return queue not in self.rates or self.hands[self.rates[queue]].use(self.clock.monotonic())

    @property
    def pause(self) -> float:
        """Seconds after which a look is worth it, though nothing happens meanwhile."""
        now = self.clock.monotonic()
        empty = [hand.look_at - now for hand in self.hands.values() if not hand.has(now)]
        return max(0.0, min([LOOK, *empty]))

    async def look(self) -> None:
        """Read breakers anew that were read a while ago, and take tokens where there are none in hand."""
        looking = [each for each in (breaker.circuit.look() for breaker in self.breakers.values()) if each]
        if looking:
            done, _ = await asyncio.wait([asyncio.wrap_future(each) for each in looking], timeout=LOOK)
            for each in done:
                each.result()
        for name, hand in self.hands.items():
            wanted = hand.need(self.clock.monotonic())
            if wanted:
                hand.take(await self._take(name, hand.rate, wanted), self.clock.monotonic())

    async def _take(self, name: str, rate: Rate, wanted: int) -> int:
        try:
            return await self.store.arun(
                lambda now: breaker_plans.take(
                    self.store.plans, name, wanted, rate.per_second, rate.burst, now
                ),
                one=True,
            )
        except StoreUnavailable as error:
            log.warning("rate.unknown", "No tokens for the rate %(rate)s: %(error)s", rate=name, error=error)
            return 0
