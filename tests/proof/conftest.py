"""The instrumented database of the explorer, one for each PostgreSQL and process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=None, help="one seed of the simulation (tests/proof/simulation)"
    )


@pytest.fixture(scope="session")
def explored(postgres_server: servers.Server) -> Iterator[object]:
    from tests.proof.explored import Explored

    found = Explored(postgres_server.create_database())
    yield found
    found.close()
