"""Every test of operations runs on both databases, PostgreSQL in each version that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import MovableClock
from tests import servers
from tests.conftest import VERSIONS, or_exit
from tests.operations.world import NOON, World, make


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("one_postgres")
        wanted = (
            VERSIONS[metafunc.config.getoption("--pg")][-1:]
            if only
            else VERSIONS[metafunc.config.getoption("--pg")]
        )
        marked = [pytest.param(each, id=f"postgres-{each}", marks=pytest.mark.postgres) for each in wanted]
        metafunc.parametrize("database", ["sqlite", *marked])


@pytest.fixture
def url(database: str, tmp_path: Path) -> Iterator[str]:
    if database == "sqlite":
        yield f"sqlite:///{tmp_path / 'holdfast.db'}"
        return
    with or_exit(lambda: servers.shared_server(database)).database() as dsn:
        yield dsn


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = make(url, MovableClock(NOON))
    yield world
    world.breakers.close()
    world.store.close()
