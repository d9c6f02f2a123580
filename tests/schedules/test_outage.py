"""After an outage the fired ids equal an independent list, the oldest first: none lost, none doubled.

Two processes start together, and before that pairs of them are killed with -9 at the points of a tick. The cross
product of outages, numbers, policies and lateness is in `make faults PART=downtime`; here is a sample in which each
value occurs with each other one of another kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from tests.proof.counts import COUNTS
from tests.schedules.downtime import HOURS, LATE, MINUTES, POLICIES, YEAR, Downtime
from tests.schedules.outage import Missed, Outage

FEW, MANY = (70, 250), (70, 250, 10_000, 100_000)
EVERY = [
    Outage(Missed(due, down), misfire, max_late)
    for down, due, misfire, max_late in product((MINUTES, HOURS, YEAR), MANY, POLICIES, LATE)
]
SAMPLE = [
    Outage(Missed(FEW[(a + b) % 2], down), misfire, LATE[(a + b) % 3])
    for (a, down), (b, misfire) in product(enumerate((MINUTES, HOURS, YEAR)), enumerate(POLICIES))
] + [Outage(Missed(10_000, down), "all", None) for down in (HOURS, YEAR)]


@pytest.fixture(scope="module")
def downtime(place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Downtime]:
    found = Downtime(place, Path(tmp_path_factory.mktemp("downtime")))
    yield found
    found.close()


def killed_and_drained(downtime: Downtime, outage: Outage, first: int, step: int) -> None:
    with downtime.after(outage) as desk:
        killed = desk.kill(first, step)
        assert killed >= 2
        desk.drain()
        desk.check()
    COUNTS.add("outages", f"on {'sqlite' if downtime.place == 'sqlite' else 'postgres'}")
    COUNTS.add("outages", "processes killed", killed)
    COUNTS.add("outages", "occurrences fired", len(outage.fired))


@pytest.mark.covers("B1", "B2", "B3", "B5", "B36", "B43", "X17", "X18", "X19", "X55")
@pytest.mark.one_postgres
@pytest.mark.parametrize("outage", SAMPLE, ids=str)
def test_two_workers_fire_exactly_what_was_missed(downtime: Downtime, outage: Outage) -> None:
    """Of the points at which they are killed, each of these outages takes every eleventh."""
    killed_and_drained(downtime, outage, SAMPLE.index(outage), len(SAMPLE))


@pytest.mark.covers("X17", "X19")
@pytest.mark.one_postgres
@pytest.mark.parametrize("down", [HOURS, YEAR], ids=str)
def test_one_worker_fires_the_oldest_first(downtime: Downtime, down: timedelta) -> None:
    outage = Outage(Missed(10_000, down), "all", None)
    with downtime.after(outage) as desk:
        desk.drain(workers=1)
        desk.check(workers=1)


@pytest.mark.faults("downtime")
@pytest.mark.one_postgres
@pytest.mark.parametrize("outage", EVERY, ids=str)
def test_every_outage(downtime: Downtime, outage: Outage) -> None:
    """The three values of the longest lateness share the points at which they are killed: each takes every third."""
    killed_and_drained(downtime, outage, LATE.index(outage.max_late), len(LATE))


@pytest.mark.faults("downtime")
@pytest.mark.one_postgres
@pytest.mark.parametrize("down", [HOURS, YEAR], ids=str)
def test_eight_workers_that_start_at_once(downtime: Downtime, down: timedelta) -> None:
    outage = Outage(Missed(100_000, down), "all", None)
    with downtime.after(outage) as desk:
        desk.drain(workers=8)
        desk.check(workers=8)
