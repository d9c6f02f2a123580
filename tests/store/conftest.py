"""`box` is a store under test, once on SQLite and once on each PostgreSQL asked for; its clock stands still.

The invariants are checked when the test has ended. PostgreSQL keeps one migrated database for the session, emptied
before each test; a test that changes the schema asks for `postgres_dsn`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from holdfast.store.postgres import PostgresStore
from tests.databases import migrated_file, server
from tests.store.box import QUEUE, TYPE, Box
from tests.store.state import COLUMNS, check_invariants, query


@pytest.fixture
def empty_box(place: str, tmp_path: Path) -> Iterator[Box]:
    """A store without a subscription."""
    box = sqlite_box(tmp_path / "holdfast.db") if place == "sqlite" else postgres_box(place)
    yield box
    check_invariants(box.store)
    if box.sqlite:
        box.store.close()


@pytest.fixture
def box(empty_box: Box) -> Box:
    """A store in which the queue `mail` subscribes to the type `order.placed`."""
    empty_box.subscribe(QUEUE, TYPE)
    return empty_box


@pytest.fixture
def pg_box(postgres_version: str) -> Iterator[Box]:
    """The same on PostgreSQL only, for what serial writers cannot do to each other."""
    box = postgres_box(postgres_version)
    box.subscribe(QUEUE, TYPE)
    yield box
    check_invariants(box.store)


def sqlite_box(path: Path) -> Box:
    path.write_bytes(migrated_file())
    clock = MovableClock()
    return Box(SqliteStore(str(path), Settings(), clock), clock)


@functools.cache
def migrated_database(version: str) -> tuple[PostgresStore, str]:
    dsn = server(version).create_database()
    store = PostgresStore(dsn, Settings(), MovableClock())
    store.migrate()
    return store, dsn


def postgres_box(version: str) -> Box:
    store, dsn = migrated_database(version)
    emptied = ", ".join(f"{name}_ as (delete from {{{name}}})" for name in COLUMNS if name != "pending")
    query(store, f"with {emptied} select 1")
    store.clock = clock = MovableClock()
    return Box(store, clock, dsn)
