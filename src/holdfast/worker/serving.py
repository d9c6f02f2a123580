"""What one worker serves: consumers by queue, with their paces and gates. Queues of families are added on demand."""

from __future__ import annotations

from collections.abc import Iterable

from ..handlers.consumer import Consumer
from ..limits.breakers import Breaker
from ..limits.gate import Gate
from ..model.names import all_below, family_of
from ..model.work import Batch
from ..rules.lanes import Limit
from ..rules.pacing import Pacing


class Serving:
    """The consumers of one worker. `consumers` also gets those of queues that are added later."""

    def __init__(self, consumers: Iterable[Consumer], gate: Gate, pacing: Pacing) -> None:
        self.gate, self.pacing = gate, pacing
        self.consumers: dict[str, Consumer] = {}
        self.families: dict[str, Consumer] = {}
        for each in consumers:
            name, limit = each.queue, _limit(each, each.queue)
            if each.is_family:
                self.families[name] = each
                pacing.asking.meet_family(name, limit)
            else:
                pacing.asking.meet(name, limit)
            self._serve(name, each)

    @property
    def names(self) -> list[str]:
        """The queues as operators see them; `customers/*` stands for those of a family."""
        return [*self.own, *(all_below(family) for family in self.families)]

    @property
    def own(self) -> list[str]:
        """The queues without those of families."""
        return [queue for queue, each in self.consumers.items() if queue == each.queue]

    def meet(self, batch: Batch) -> None:
        """Add new queues of families, and forget those that have no work."""
        if not self.families:
            return
        for family, found in batch.found.items():
            for queue in found.queues:
                if queue not in self.consumers:
                    self._meet(queue, family)
        for queue in batch.shares:
            if queue not in self.consumers and (of := family_of(queue, self.families)) is not None:
                self._meet(queue, of)
        for queue in self.pacing.forgettable():
            self.gate.forget(queue)
            self.pacing.asking.forget(queue)
            del self.consumers[queue]

    def _meet(self, queue: str, family: str) -> None:
        consumer = self.families[family]
        self.pacing.asking.meet_member(queue, _limit(consumer, queue), family)
        self._serve(queue, consumer)

    def _serve(self, queue: str, consumer: Consumer) -> None:
        self.consumers[queue] = consumer
        limits = consumer.limits(queue)
        breaker = limits.breaker if isinstance(limits.breaker, Breaker) else None
        self.gate.meet(
            queue, breaker, limits.rate, limits.slots, limits.catch_up, limits.door, like=consumer.queue
        )


def _limit(consumer: Consumer, queue: str) -> Limit:
    limits = consumer.limits(queue)
    return Limit(
        concurrency=limits.concurrency * max(1, consumer.batch),
        timeout=limits.timeout,
        ahead=limits.ahead and consumer.policy.retry.starts_max > 1,
        per_key=limits.per_key,
        run=limits.run,
    )
