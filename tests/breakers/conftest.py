"""`cluster`: processes that share a database, SQLite or PostgreSQL, and a clock that stands still until it is moved.

A process is a store of its own with its own breakers, as far as anything but memory goes. PostgreSQL keeps one migrated
database for the session; its breakers and rates are forgotten before each test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.breakers import Breakers
from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import Store, breaker_plans, open_store
from holdfast.store.breaker_plans import BreakerRow
from holdfast.store.statement import Plan, Rows, Statement
from tests import servers
from tests.conftest import VERSIONS, or_exit


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        versions = VERSIONS[metafunc.config.getoption("--pg")]
        if metafunc.definition.get_closest_marker("one_postgres"):
            versions = versions[-1:]
        majors = {"old": servers.WANTED_OLD_MAJOR, "new": servers.NEW_MAJOR}
        places = [pytest.param(each, id=f"pg{majors[each]}", marks=pytest.mark.postgres) for each in versions]
        metafunc.parametrize("place", [pytest.param("sqlite", id="sqlite"), *places], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    where: str = request.param
    return where


@functools.cache
def migrated_database(version: str) -> str:
    dsn = or_exit(lambda: servers.shared_server(version)).create_database()
    store = open_store(dsn, Settings(), MovableClock())
    store.migrate()
    store.close()
    return dsn


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
        breakers = Breakers(store)
        self.processes.append((breakers, store))
        return breakers

    def row(self, name: str = "llm") -> BreakerRow:
        return self.store.run(lambda now: breaker_plans.look(self.store.plans, name, now))[0]

    def writes(self, do: Callable[[], Any], name: str = "llm") -> int:
        """How often the row of a breaker is written by this."""
        before = self.row(name).version
        do()
        return self.row(name).version - before

    def query(self, sql: str) -> Rows:
        def plan(_: object) -> Plan[Rows]:
            return (yield Statement(sql))

        return self.store.run(plan)

    def advance(self, **parts: float) -> None:
        self.clock.advance(**parts)

    def close(self) -> None:
        for breakers, store in self.processes:
            breakers.close()
            store.close()
        self.store.close()


@pytest.fixture
def url(place: str, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'holdfast.db'}" if place == "sqlite" else migrated_database(place)


@pytest.fixture
def cluster(place: str, url: str) -> Iterator[Cluster]:
    cluster = Cluster(url)
    if place == "sqlite":
        cluster.store.migrate()
    else:
        cluster.query("truncate holdfast.breaker, holdfast.rate")
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
