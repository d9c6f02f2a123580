from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schedules.desk import Desk


@pytest.fixture
def desk(url: str) -> Iterator[Desk]:
    made = Desk(url)
    made.app.prepare()
    yield made
    made.close()
