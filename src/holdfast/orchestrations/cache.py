"""Live instances between their turns: the most recently used, bounded by count and by the bytes of their journals.

Of those that wait for timers alone, and for a while, few are kept: to replay one when it wakes up costs less than the
memory of all that sleep. A few are, since signals may come one after another although nobody waits for them yet.

What is taken out is closed at once, with its commands switched off: a suspended coroutine that is left to the garbage
collector may be woken at any moment, on any thread. A hit counts only at the expected (execution, turn).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .turn import Instance

COUNT = 10_000  # of about 6 kB each, beside their journals
ASLEEP, ASLEEP_MICROS = 500, 60_000_000  # of those that nothing wakes within a minute but a signal
BYTES = 64 * 1024 * 1024


class Cache:
    """Instances by id, the least recently used first. Not for use from two threads at once."""

    def __init__(self, count: int = COUNT, size: int = BYTES) -> None:
        self.count, self.size = count, size
        self.hits = self.misses = self.evicted = 0
        self._held: OrderedDict[str, Instance] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._asleep: OrderedDict[str, None] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        """Of the journals of all that are held."""
        return self._total

    def take(self, id: str, execution: int, turns: int) -> Instance | None:
        """The instance, if it stands at this turn; it is out of the cache then. One at another turn is dropped."""
        instance = self._remove(id)
        if instance is None:
            self.misses += 1
            return None
        if (instance.execution, instance.turns) != (execution, turns):
            instance.close()
            self.misses += 1
            return None
        self.hits += 1
        return instance

    def look(self, id: str) -> Instance | None:
        """The instance as it is held, without taking it out."""
        return self._held.get(id)

    def put(self, instance: Instance) -> None:
        """Keep it after its turn was stored. One that has ended is closed."""
        self.drop(instance.id)
        if instance.ended is not None or instance.size > self.size:
            instance.close()
            return
        self._held[instance.id] = instance
        self._sizes[instance.id] = instance.size
        self._total += instance.size
        if instance.sleeps_for >= ASLEEP_MICROS:
            self._asleep[instance.id] = None
            if len(self._asleep) > ASLEEP:
                self._evict(self._asleep)
        while len(self._held) > self.count or self._total > self.size:
            self._evict(self._held)

    def _evict(self, held: OrderedDict[str, Any]) -> None:
        self.evicted += 1
        self.drop(next(iter(held)))

    def drop(self, id: str) -> None:
        """After a lost lease, a refused settlement, a pause or a rewind: what is in memory may be wrong."""
        instance = self._remove(id)
        if instance is not None:
            instance.close()

    def clear(self) -> None:
        while self._held:
            self.drop(next(iter(self._held)))

    def _remove(self, id: str) -> Instance | None:
        instance = self._held.pop(id, None)
        if instance is not None:
            self._total -= self._sizes.pop(id)
            self._asleep.pop(id, None)
        return instance
