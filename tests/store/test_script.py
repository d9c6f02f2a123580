"""Random scripts: SQLite and PostgreSQL step by step with the same result, and SQLite alone for long ones.

The seed is that of the day, so that every run of a day plays the same and every day another; a failure names it.
`HOLDFAST_TEST_SCRIPTS=1000` plays so many of each, `HOLDFAST_TEST_SEED=7` begins with that seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.clock import MovableClock, wall_clock
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from tests.store.box import Box
from tests.store.conftest import postgres_box
from tests.store.script import Script

COUNT = int(os.environ.get("HOLDFAST_TEST_SCRIPTS", "0"))
SEED = int(os.environ.get("HOLDFAST_TEST_SEED") or wall_clock().strftime("%Y%m%d000"))

# What has to come about in the scripts of one test, or they show nothing.
ENOUGH = ("claimed", "followers", "settled", "fenced", "duplicates")


def memory_box() -> Box:
    clock = MovableClock()
    store = SqliteStore(":memory:", Settings(), clock)
    store.migrate()
    return Box(store, clock)


def play(open_boxes: Callable[[], list[Box]], *, count: int, steps: int) -> None:
    came_about: Counter[str] = Counter()
    print(f"seeds {SEED} to {SEED + (COUNT or count) - 1}")
    for seed in range(SEED, SEED + (COUNT or count)):
        boxes = open_boxes()
        script = Script(boxes, seed)
        script.play(steps)
        came_about += script.counts
        for box in boxes:
            if box.sqlite:
                box.store.close()
    print(dict(came_about))
    assert not [each for each in ENOUGH if came_about[each] == 0]


@pytest.mark.timeout(7200)
@pytest.mark.one_postgres
def test_both_databases_do_the_same(postgres_version: str) -> None:
    play(lambda: [memory_box(), postgres_box(postgres_version)], count=4, steps=160)


@pytest.mark.timeout(7200)
def test_nothing_breaks_in_long_scripts() -> None:
    play(lambda: [memory_box()], count=3, steps=300)
