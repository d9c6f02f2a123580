"""`cluster`: processes that share a database, SQLite or PostgreSQL, and a clock that stands still until it is moved.

A process is a store of its own with its own breakers, as far as anything but memory goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import operations
from holdfast.clock import MovableClock
from holdfast.limits.breakers import Breakers
from holdfast.settings import Settings
from holdfast.store import Store, open_store
from holdfast.store.plans import breakers
from holdfast.store.plans.breakers import BreakerRow
from holdfast.store.statement import Plan, Rows, Statement


class Cluster:
    """A database, and the processes that use it."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, MovableClock()
        self.processes: list[tuple[Breakers, Store]] = []
        self.store = self.open()

    def open(self) -> Store:
        return open_store(self.url, Settings(), self.clock)

    def process(self) -> Breakers:
        store = self.open()
        found = Breakers(store)
        self.processes.append((found, store))
        return found

    def operator(self, process: Breakers | None = None) -> operations.Breakers:
        """An operator, in a process of his own if none is given."""
        process = process or self.process()
        store = next(store for found, store in self.processes if found is process)
        return operations.Operations(store, breakers=process).breakers

    def row(self, name: str = "llm") -> BreakerRow:
        return self.store.run(breakers.look(name))[0]

    def writes(self, do: Callable[[], Any], name: str = "llm") -> int:
        """How often the row of a breaker is written by this."""
        before = self.row(name).version
        do()
        return self.row(name).version - before

    def query(self, sql: str) -> Rows:
        def plan() -> Plan[Rows]:
            return (yield Statement(sql))

        return self.store.run(plan())

    def advance(self, **parts: float) -> None:
        self.clock.advance(**parts)

    def close(self) -> None:
        for found, store in self.processes:
            found.close()
            store.close()
        self.store.close()


@pytest.fixture
def cluster(url: str) -> Iterator[Cluster]:
    cluster = Cluster(url)
    yield cluster
    cluster.close()


class Down(ConnectionError):
    """What a dependency raises that is not there."""


def fail(breaker: Any, times: int = 1, error: Exception | None = None) -> None:
    for _ in range(times):
        with pytest.raises(type(error) if error else Down), breaker:
            raise error or Down


def succeed(breaker: Any, times: int = 1) -> None:
    for _ in range(times):
        with breaker:
            pass
