"""`rabbitmq_version`: "old" (3.10) and "new" (4.0). `rabbitmq`: the URL of the run's broker of that version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests import brokers
from tests.databases import or_exit
from tests.transports.wire import Wire

T = TypeVar("T")


@pytest.fixture(scope="session", params=["old", "new"], ids=brokers.LABELS.get)
def rabbitmq_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def rabbitmq(rabbitmq_version: str) -> str:
    return shared(rabbitmq_version)


def shared(role: str) -> str:
    """A broker that cannot be had ends the run with one line."""
    get: Callable[[], str] = lambda: brokers.shared_url(role)  # noqa: E731
    return or_exit(get)


@pytest.fixture
def wire(rabbitmq: str) -> Iterator[Wire]:
    """A proxy before the run's broker."""
    wire = Wire(rabbitmq)
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def own_broker(rabbitmq_version: str) -> Iterator[brokers.Broker]:
    """A broker of the module's own, which it may kill, block and start again."""
    broker = or_exit(lambda: brokers.own_broker(rabbitmq_version))
    yield broker
    broker.close()
