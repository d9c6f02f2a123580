"""The migration is killed with -9 at every statement: the schema is whole or not there, and the next one ends it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.errors import NotMigrated
from holdfast.settings import Settings
from holdfast.store import SqliteStore, Store
from holdfast.store.postgres import PostgresStore
from tests.databases import server
from tests.proof.contents import Contents
from tests.proof.counts import COUNTS
from tests.proof.kill.killing import Children, folder, wait_for
from tests.store.box import Box


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def dialect(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def children() -> Iterator[tuple[Children, Path]]:
    with folder() as path:
        (path / "contents").write_bytes(pickle.dumps(Contents(datetime(2026, 1, 1, tzinfo=UTC))))
        found = Children(path)
        yield found, path
        found.close()


@pytest.mark.faults("kills")
def test_migrations_are_whole(dialect: str, children: tuple[Children, Path]) -> None:
    family, path = children
    count = 0
    points: list[str] = []
    while not points or count < len(points):
        url = fresh(dialect, path, count)
        order: dict[str, Any] = {
            "dialect": dialect,
            "url": url,
            "verb": "migrate",
            "contents": str(path / "contents"),
        }
        if not points:
            family.start(order)
            points = family.end().said["points"]
            assert len(points) > 50
            continue
        family.start({**order, "kill_at": count})
        assert family.end().killed
        if dialect == "postgres":
            wait_for(lambda at=url: alone(at), "the backend of the dead migrator")
        check(dialect, url, points[count])
        count += 1
    COUNTS.add("kill points", f"in migrations of {dialect}", count)


def fresh(dialect: str, path: Path, number: int) -> str:
    if dialect == "sqlite":
        return str(path / f"{number}.db")
    return server("new").create_database()


def alone(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and backend_type = 'client backend'"
        ).fetchall()
    return rows == [(0,)]


def check(dialect: str, url: str, about: str) -> None:
    clock = MovableClock()
    store: Store
    store = (
        SqliteStore(url, Settings(), clock) if dialect == "sqlite" else PostgresStore(url, Settings(), clock)
    )
    try:
        try:
            store.check()
        except NotMigrated:
            pass
        store.migrate()
        assert store.migrate() == []
        box = Box(store, clock, url)
        box.subscribe()
        box.send("a", stream="s")
        assert len(box.claim()) == 1, about
    finally:
        store.close()
        if dialect == "postgres":
            server("new").drop_database(url)
