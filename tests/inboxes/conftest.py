"""An application with an inbox, on both databases, and the run's RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from holdfast import Holdfast
from tests.transports.conftest import own_broker, rabbitmq, rabbitmq_version

__all__ = ["own_broker", "rabbitmq", "rabbitmq_version"]


@pytest.fixture
def app(url: str) -> Iterator[Holdfast]:
    made = Holdfast(url)
    yield made
    made.close()


async def until(done: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
