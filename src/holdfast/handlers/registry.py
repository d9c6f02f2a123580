"""The consumers of an application, by queue. A queue below a family's name belongs to the family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..errors import InvalidSettings
from ..model.names import BELOW, family_of
from .consumer import Consumer


class Handlers:
    """The consumers of an application: one for each queue, or for each family of queues."""

    def __init__(self, consumers: Iterable[Consumer] = ()) -> None:
        self._by_name: dict[str, Consumer] = {}
        self._families: dict[str, Consumer] = {}
        self.renamed: dict[str, str] = {}  # old names of handlers, and their names now
        for each in consumers:
            self.add(each)

    def add(self, consumer: Consumer) -> None:
        name = consumer.queue
        if name in self._by_name:
            raise InvalidSettings(
                f"There is already a handler named {name!r}: give one of them another name with name=..."
            )
        if name in self.renamed:
            raise InvalidSettings(
                f"Handler {self.renamed[name]!r} says that it was called {name!r} before (renamed_from): give the new "
                "handler another name."
            )
        if (family := family_of(name, self._families)) is not None:
            raise InvalidSettings(
                f"Queue {name!r} belongs to the family {family!r}, which has a handler: use a name that does not begin "
                f"with {family + BELOW!r}."
            )
        if consumer.is_family:
            if (
                below := next((each for each in self._by_name if each.startswith(name + BELOW)), None)
            ) is not None:
                raise InvalidSettings(
                    f"The family {name!r} would take the queue of the handler {below!r}: give one of them another name."
                )
            self._families[name] = consumer
        self._by_name[name] = consumer

    def rename(self, old: str, new: str) -> None:
        """Record that the handler `new` was called `old` before."""
        if old in self._by_name:
            raise InvalidSettings(
                f"Handler {new!r}: renamed_from={old!r} names another handler of this application. Remove one of them."
            )
        if self.renamed.get(old, new) != new:
            raise InvalidSettings(
                f"Two handlers, {self.renamed[old]!r} and {new!r}, say renamed_from={old!r}."
            )
        self.renamed[old] = new

    def put(self, consumer: Consumer) -> None:
        """Replace the handler of this name."""
        self._by_name.pop(consumer.queue, None)
        self._families.pop(consumer.queue, None)
        self.add(consumer)

    def report_deaths(self) -> None:
        """From now on the deaths of these handlers' messages are reported to the application's hook."""
        for name, each in self._by_name.items():
            after_death = replace(each.policy.after_death, has_hook=True)
            self._by_name[name] = changed = each.but(replace(each.policy, after_death=after_death))
            if changed.is_family:
                self._families[name] = changed

    def get(self, queue: str) -> Consumer | None:
        """The consumer of this queue: the handler of this name, or that of its family."""
        found = self._by_name.get(queue)
        if found is None and self._families and (family := family_of(queue, self._families)) is not None:
            return self._families[family]
        return found

    def __contains__(self, queue: object) -> bool:
        return isinstance(queue, str) and self.get(queue) is not None

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._by_name.values())

    def __getitem__(self, queue: str) -> Consumer:
        found = self.get(queue)
        if found is None:
            raise KeyError(queue)
        return found

    def __len__(self) -> int:
        return len(self._by_name)

    def subscriptions(self) -> dict[str, tuple[str, ...]]:
        return {each.queue: each.patterns for each in self}

    def unordered(self) -> list[str]:
        """The queues that do not keep the order of streams. A family's setting holds for all its queues."""
        return [each.queue for each in self if not each.is_ordered]
