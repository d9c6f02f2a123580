"""What the rest of a run does after one of its messages."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.rules.delivery import Cancelled, Died, Ending, NeverStarted, Raised, Released, Returned, Snoozed
from holdfast.rules.ordering import rest_of_run
from tests.rules.cases import handler, settle

FAILED = Raised(ValueError())


@pytest.mark.parametrize(
    ("ending", "how", "rest"),
    [
        (Returned(), {}, "continue"),
        (Cancelled(), {}, "continue"),
        (Released(), {}, "continue"),
        (FAILED, {"ordering": "strict"}, "give back"),
        (FAILED, {"ordering": "available"}, "continue"),
        (Snoozed(5), {"ordering": "available"}, "give back"),
        (NeverStarted(), {}, "give back"),
        (Died("no"), {"on_dead": "continue"}, "continue"),
        (Died("no"), {"on_dead": "halt"}, "give back"),
    ],
)
def test_rest_of_run(ending: Ending, how: dict[str, Any], rest: str) -> None:
    assert rest_of_run(settle(ending, how=handler(**how))) == rest
