"""The world of the explorer: what `turn` says of the tables is what is in them, and it leaves them as they were."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proof.explorer import Beginning
from tests.proof.operations import operations


def in_order(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {table: sorted(repr(sorted(row.items())) for row in rows) for table, rows in tables.items()}


@pytest.mark.one_postgres
def test_a_turn_reads_what_is_there_and_puts_it_back(explored: Any) -> None:
    world = explored.world
    before = in_order(world.read())
    changed = set()
    for name, operation in operations().items():
        explored.explorer.run([operation], world, Beginning())
        left = in_order(world.read())
        assert in_order(world.turn()) == left, name
        assert in_order(world.read()) == before, name
        changed |= {table for table in before if left[table] != before[table]}
    assert changed >= {
        "message",
        "stream",
        "lease",
        "dead",
        "dedupe",
        "history",
        "event",
        "effect",
        "business",
    }
