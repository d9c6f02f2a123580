"""The scene of test_interleaved.py and test_interleaved_guesses.py: one database, put back before every schedule.

Each of them has a `World` on it, which says what was there at the beginning and what is left at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast import Holdfast
from holdfast.clock import MovableClock
from holdfast.store.postgres import PostgresStore
from holdfast.store.statement import Runnable, Statement
from tests import servers
from tests.proof import instrument
from tests.proof.counts import COUNTS
from tests.proof.explorer import Explorer, Run
from tests.proof.operations import RACE
from tests.proof.session import Body, Operation, Quiet

OLD, NEW = 4711, 4712  # two workers
REFUSED = "is not the next one of its instance"  # the turn of a worker whose instance has had this one since
TABLES = ("message", "lease", "stream", "instance", "journal", "history", "death", "dead")


class Scene:
    """A database with an application. `keep` is called when all is as it shall be at the beginning."""

    def __init__(self, dsn: str) -> None:
        app = Holdfast(dsn, clock=MovableClock())
        assert isinstance(app.store, PostgresStore)
        self.app, self.store = app, app.store
        self.store.migrate()
        self.connection = psycopg.connect(dsn, autocommit=True)

    def keep(self) -> datetime:
        """What is there now is the beginning; returns its time."""
        instrument.install(self.connection)
        self.connection.execute("set session_replication_role = replica")  # rows come back without triggers
        for table in TABLES:
            self.connection.execute(f"create table proof.before_{table} as table holdfast.{table}".encode())
        return datetime.now(UTC)

    def query(self, text: str) -> list[Any]:
        return self.connection.execute(text.encode()).fetchall()

    def put_back(self) -> None:
        for table in TABLES:
            self.connection.execute(f"delete from holdfast.{table}".encode())
            self.connection.execute(f"insert into holdfast.{table} table proof.before_{table}".encode())

    def close(self) -> None:
        self.connection.close()
        self.app.close()


class Staged(Protocol):
    @property
    def scene(self) -> Scene: ...


W = TypeVar("W", bound=Staged)


def own(plan: Runnable[Any]) -> Any:
    """In a transaction of its own."""
    yield Quiet("begin")
    found = yield from plan
    yield Statement("commit")
    return found


@contextmanager
def exploring(server: servers.Server, make: Callable[[Scene], W]) -> Iterator[tuple[W, Explorer]]:
    """A world in a database of its own, and who plays the schedules there."""
    with server.database() as dsn:
        scene = Scene(dsn)
        world = make(scene)  # before the explorer, which needs the instrument that `keep` installs
        explorer = Explorer(dsn)
        yield world, explorer
        explorer.close()
        scene.close()


def schedules(
    explored: tuple[W, Explorer], operations: Mapping[str, Callable[[W], Body]], names: tuple[str, ...],
    preemptions: int | None, faults: Callable[[Run], list[str]], counted: str,
) -> list[Run]:  # fmt: skip
    """Every schedule of these operations, in none of which there was a fault."""
    world, explorer = explored
    chosen = [Operation(name, operations[name], RACE) for name in names]
    runs = []
    for run in explorer.explore(chosen, world, preemptions):
        story = "\n  ".join(run.trace)
        assert not (wrong := faults(run)), f"{names}: {wrong}\n  {story}"
        runs.append(run)
    COUNTS.add("explorer", counted, len(runs))
    return runs
