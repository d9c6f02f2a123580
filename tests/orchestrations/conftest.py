"""A shop on each database, whose tables are checked when its test has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.orchestrations.shop import Shop, opened


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with opened(url) as shop:
        yield shop
