"""Every test of operations runs on both databases, in a world whose clock stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.clock import MovableClock
from tests.operations.world import NOON, World, make


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = make(url, MovableClock(NOON))
    yield world
    world.breakers.close()
    world.store.close()
