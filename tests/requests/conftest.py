from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.requests.desk import Desk
from tests.requests.desk import desk as made


@pytest.fixture
def desk(url: str) -> Iterator[Desk]:
    """The application on SQLite and on PostgreSQL, with a clock that stands still."""
    found = made(url)
    yield found
    found.app.close()
