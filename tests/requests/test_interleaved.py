"""Two and three sessions on PostgreSQL in every order of their statements, commits included (tests/proof/explorer.py).

Each reading of the clock is a microsecond later than the one before, whoever reads it, and the deadline lies at each of
the first readings in turn. So the moments are in the order in which the sessions read them, and one of them is exactly
the deadline. Whoever reads the clock before it has the lock gets a time that does not fit what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.errors import Refused
from holdfast.requests import verbs
from holdfast.requests.hooks import Pen
from holdfast.settings import Settings
from holdfast.store.connecting_postgres import quick
from holdfast.store.plans import engine, requests
from holdfast.store.plans.engine_postgres import PostgresEngine
from holdfast.store.postgres import PostgresStore
from holdfast.store.statement import Bound, Query, Runnable, Statement, drive
from holdfast.store.text import compile
from tests import servers
from tests.proof import instrument
from tests.proof.counts import COUNTS
from tests.proof.explorer import Explorer
from tests.proof.session import Body, Operation, Quiet
from tests.requests.orders import HOOKS, faults, stored

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
PEN = Pen(None)


class TickingEngine(PostgresEngine):
    """Its clock is a sequence: each reading is later than all before."""

    def bind(self, query: Query, now: Any) -> Statement:
        if query.parts == ("operator/op_moment",):
            return Statement(
                "select timestamptz '2026-03-01 12:00:00+00' + nextval('proof.clock') * interval '1 microsecond'"
            )
        return super().bind(query, now)


class World:
    """One open request, with the hooks of its kind, put back before every schedule."""

    def __init__(self, dsn: str) -> None:
        self.store = PostgresStore(dsn, Settings(), MovableClock(NOON))
        self.store.migrate()
        self.store.run(engine.subscribe({f"grading.{each}": () for each in HOOKS}))
        self.connection = psycopg.connect(dsn, autocommit=True)
        instrument.install(self.connection)
        self.connection.execute("create sequence proof.clock")
        self.store.engine = TickingEngine()  # type: ignore[misc]
        self.id, self.deadline = uuid4(), NOON
        # Whoever sweeps finds the request in any case: whether its time has come, the next statement says.
        self.now = NOON + timedelta(hours=1)

    def begin(self, deadline: int) -> None:
        self.deadline = NOON + deadline * TICK
        self.turn()

    def turn(self) -> Any:
        """What is stored now; after which everything is as it was."""
        found = None
        if self.connection.execute("select 1 from holdfast.request").fetchone():
            found = self._drive(stored(self.id, "holdfast.message"))
        for table in ("message", "request", "request_result"):
            self.connection.execute(f"delete from holdfast.{table}".encode())
        self.connection.execute("select setval('proof.clock', 1, false)")
        self._drive(
            requests.open_(
                self.id,
                kind="grading",
                variant=None,
                type=None,
                stream=None,
                subject=None,
                body="1",
                created_at=NOON - timedelta(hours=1),
                deadline=self.deadline,
                soft_at=None,
                next_at=self.deadline,
            )
        )
        return found

    def _drive(self, plan: Runnable[Any]) -> Any:
        def execute(statement: Statement) -> list[Any]:
            cursor = self.connection.execute(
                compile(statement.sql, "pyformat").sql.encode(), quick(statement.params)
            )
            return cursor.fetchall() if cursor.description else []

        return drive(self.store.bound(plan), execute)

    def close(self) -> None:
        self.connection.close()
        self.store.close()


def transaction(plan: Callable[[UUID], Runnable[Any]]) -> Callable[[World], Body]:
    """A transaction as the store or a user makes it; a refusal is rolled back."""

    def body(world: World) -> Bound[Any]:
        yield Quiet("begin")
        try:
            answer = yield from plan(world.id)
        except Refused as refusal:
            yield Statement("rollback")
            return refusal
        yield Statement("commit")
        return answer

    return body


def resolve(failed: str | None = None) -> Callable[[UUID], Runnable[Any]]:
    return lambda id: verbs.resolve([verbs.Arrival(uuid4(), id, failed, "7")], PEN)


OPERATIONS = {
    "sweep": lambda id: verbs.sweep(PEN),
    "resolve": resolve(),
    "fail": resolve("no"),
    "accept": lambda id: verbs.accept(id, None, "anna", PEN),
    "extend": lambda id: verbs.extend(id, 2 * TICK),
    "cancel": lambda id: verbs.cancel(id, None, PEN),
}


@pytest.fixture(scope="module")
def explored(postgres_server: servers.Server) -> Iterator[tuple[World, Explorer]]:
    with postgres_server.database() as dsn:
        world = World(dsn)
        explorer = Explorer(dsn)
        yield world, explorer
        explorer.close()
        world.close()


def check(explored: tuple[World, Explorer], names: tuple[str, ...], preemptions: int | None) -> int:
    world, explorer = explored
    chosen = [Operation(name, transaction(OPERATIONS[name])) for name in names]
    count = 0
    for deadline in range(len(names) + 2):
        world.begin(deadline)
        for run in explorer.explore(chosen, world, preemptions):
            answers = [each[0] if isinstance(each, list) else each for each in run.results]
            wrong = [*run.faults, *faults(run.left, answers)]
            story = "\n  ".join(run.trace)
            assert not wrong, f"{names}, the deadline at reading {deadline}: {wrong}\n  {story}"
            count += 1
    COUNTS.add("explorer", "schedules of requests", count)
    return count


PAIRS = (
    ("sweep", "resolve"),
    ("resolve", "resolve"),
    ("resolve", "fail"),
    ("sweep", "sweep"),
    ("resolve", "accept"),
    ("accept", "accept"),
    ("extend", "resolve"),
    ("extend", "sweep"),
    ("extend", "extend"),
)
TRIPLES = (
    ("sweep", "resolve", "resolve"),
    ("sweep", "resolve", "accept"),
    ("resolve", "accept", "accept"),
    ("sweep", "resolve", "extend"),
    ("resolve", "fail", "extend"),
)


@pytest.mark.one_postgres
@pytest.mark.covers("X31", "X57", "V42")
@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_pair(explored: tuple[World, Explorer], names: tuple[str, ...]) -> None:
    assert check(explored, names, 1) > 3


@pytest.mark.faults("explorer")
@pytest.mark.one_postgres
@pytest.mark.parametrize("names", [*PAIRS, *TRIPLES], ids="-".join)
def test_in_every_order(explored: tuple[World, Explorer], names: tuple[str, ...]) -> None:
    assert check(explored, names, None if len(names) == 2 else 1) > 3
