"""`box` is a store under test, once on SQLite and once on each PostgreSQL asked for; its clock stands still.

The invariants are checked when the test has ended. PostgreSQL keeps one migrated database for the session, emptied
before each test; a test that changes the schema asks for `postgres_dsn`.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import MovableClock
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from holdfast.store.postgres import PostgresStore
from tests import servers
from tests.conftest import VERSIONS, or_exit
from tests.store.box import QUEUE, TYPE, Box
from tests.store.state import COLUMNS, check_invariants, query


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" not in metafunc.fixturenames and "postgres_place" not in metafunc.fixturenames:
        return
    versions = VERSIONS[metafunc.config.getoption("--pg")]
    if metafunc.definition.get_closest_marker("one_postgres"):
        versions = versions[-1:]
    majors = {"old": servers.WANTED_OLD_MAJOR, "new": servers.NEW_MAJOR}
    places = [pytest.param(each, id=f"pg{majors[each]}", marks=pytest.mark.postgres) for each in versions]
    if "postgres_place" in metafunc.fixturenames:
        metafunc.parametrize("postgres_place", places, indirect=True)
    else:
        metafunc.parametrize("place", [pytest.param("sqlite", id="sqlite"), *places], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Where the store is: "sqlite", or "old" or "new" PostgreSQL."""
    where: str = request.param
    return where


@pytest.fixture
def postgres_place(request: pytest.FixtureRequest) -> str:
    where: str = request.param
    return where


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
def pg_box(postgres_place: str) -> Iterator[Box]:
    """The same on PostgreSQL only, for what serial writers cannot do to each other."""
    box = postgres_box(postgres_place)
    box.subscribe(QUEUE, TYPE)
    yield box
    check_invariants(box.store)


@functools.cache
def migrated_file() -> bytes:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-store-"))
    store = SqliteStore(str(folder / "empty.db"), Settings(), MovableClock())
    store.migrate()
    store.close()
    content = (folder / "empty.db").read_bytes()
    shutil.rmtree(folder)
    return content


def sqlite_box(path: Path) -> Box:
    path.write_bytes(migrated_file())
    clock = MovableClock()
    return Box(SqliteStore(str(path), Settings(), clock), clock)


@functools.cache
def migrated_database(version: str) -> tuple[PostgresStore, str]:
    dsn = or_exit(lambda: servers.shared_server(version)).create_database()
    store = PostgresStore(dsn, Settings(), MovableClock())
    store.migrate()
    return store, dsn


def postgres_box(version: str) -> Box:
    store, dsn = migrated_database(version)
    emptied = ", ".join(f"{name}_ as (delete from {{{name}}})" for name in COLUMNS)
    query(store, f"with {emptied} select 1")
    store.clock = clock = MovableClock()
    return Box(store, clock, dsn)
