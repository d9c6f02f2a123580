"""`lab`: a database of the test's own, on SQLite and on each PostgreSQL asked for, with workers in it.

The invariants of the store are checked when the test has ended.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import Holdfast
from tests import servers
from tests.conftest import VERSIONS, or_exit
from tests.store.state import check_invariants
from tests.worker.lab import Lab


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, with_sqlite in (("place", True), ("postgres_place", False)):
        if fixture in metafunc.fixturenames:
            versions = VERSIONS[metafunc.config.getoption("--pg")]
            if metafunc.definition.get_closest_marker("one_postgres"):
                versions = versions[-1:]
            majors = {"old": servers.WANTED_OLD_MAJOR, "new": servers.NEW_MAJOR}
            places = [
                pytest.param(each, id=f"pg{majors[each]}", marks=pytest.mark.postgres) for each in versions
            ]
            if with_sqlite:
                places.insert(0, pytest.param("sqlite", id="sqlite"))
            metafunc.parametrize(fixture, places, indirect=True)


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
def lab(place: str, tmp_path: Path) -> Iterator[Lab]:
    if place == "sqlite":
        yield from in_lab(Lab(f"sqlite:///{tmp_path / 'lab.db'}", tmp_path))
    else:
        with or_exit(lambda: servers.shared_server(place)).database(migrated(place)) as dsn:
            yield from in_lab(Lab(dsn, tmp_path))


@pytest.fixture
def sqlite_lab(tmp_path: Path) -> Iterator[Lab]:
    yield from in_lab(Lab(f"sqlite:///{tmp_path / 'lab.db'}", tmp_path))


@pytest.fixture
def pg_lab(postgres_place: str, tmp_path: Path) -> Iterator[Lab]:
    with or_exit(lambda: servers.shared_server(postgres_place)).database(migrated(postgres_place)) as dsn:
        yield from in_lab(Lab(dsn, tmp_path))


def in_lab(lab: Lab) -> Iterator[Lab]:
    yield lab
    lab.end_processes()
    check_invariants(lab.store)
    lab.close()


@functools.cache
def migrated(version: str) -> str:
    """The name of a database with our tables, to be copied."""
    dsn = or_exit(lambda: servers.shared_server(version)).create_database()
    app = Holdfast(dsn)
    app.migrate()
    app.close()
    return urlsplit(dsn).path[1:]
