"""What one worker serves: consumers by queue, with their paces and gates. Queues of families are added on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..clock import Clock
from ..errors import UsageError
from ..handlers.consumer import BatchConsumer, Consumer, Declared, RunConsumer, SingleConsumer
from ..handlers.registry import Handlers
from ..limits.breakers import Breaker
from ..limits.gate import Gate
from ..model.names import all_below, family_of
from ..model.work import Batch
from ..rules.lanes import Limit
from ..rules.pacing import Pacing


@dataclass(frozen=True, slots=True)
class ByCall:
    """The consumers by queue and by the way they are called; each queue is in one of the three."""

    singles: dict[str, SingleConsumer] = field(default_factory=dict)
    batches: dict[str, BatchConsumer] = field(default_factory=dict)
    runs: dict[str, RunConsumer] = field(default_factory=dict)

    def add(self, consumer: Consumer) -> None:
        name = consumer.queue
        if isinstance(consumer, RunConsumer):
            self.runs[name] = consumer
        elif consumer.batch and isinstance(consumer, BatchConsumer):
            self.batches[name] = consumer
        elif not consumer.batch and isinstance(consumer, SingleConsumer):
            self.singles[name] = consumer
        else:
            raise UsageError(
                f"The consumer of queue {name!r} has batch={consumer.batch} and no method for that: it needs call, "
                "with a batch call_batch or call_runs."
            )

    def add_member(self, queue: str, family: str) -> None:
        if family in self.singles:
            self.singles[queue] = self.singles[family]
        elif family in self.batches:
            self.batches[queue] = self.batches[family]
        else:
            self.runs[queue] = self.runs[family]

    def forget(self, queue: str) -> None:
        for each in (self.singles, self.batches, self.runs):
            each.pop(queue, None)


class Serving:
    """The consumers of one worker. `consumers` also gets those of queues that are added later."""

    def __init__(self, consumers: Iterable[Consumer], gate: Gate, pacing: Pacing) -> None:
        self.gate, self.pacing = gate, pacing
        self.consumers: dict[str, Consumer] = {}
        self.by_call = ByCall()
        self.families: dict[str, Consumer] = {}
        for each in consumers:
            name, limit = each.queue, _limit(each, each.queue)
            if each.is_family:
                self.families[name] = each
                pacing.asking.meet_family(name, limit)
            else:
                pacing.asking.meet(name, limit)
            self.by_call.add(each)
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
            self.by_call.forget(queue)
            del self.consumers[queue]

    def _meet(self, queue: str, family: str) -> None:
        consumer = self.families[family]
        self.pacing.asking.meet_member(queue, _limit(consumer, queue), family)
        self.by_call.add_member(queue, family)
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


def served_by(handlers: Handlers, queues: Iterable[str] | None, clock: Clock) -> list[Consumer]:
    """The consumers of the queues that are asked for, each ready for one worker."""
    wanted = None if queues is None else set(queues)
    return [
        each.for_worker(clock) if isinstance(each, Declared) else each
        for each in handlers
        if wanted is None or each.queue in wanted
    ]
