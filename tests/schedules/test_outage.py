"""After an outage the fired ids equal an independent list, the oldest first: none lost, none doubled.

Two workers start together, and in the last tests they are killed with -9 again and again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, daily
from holdfast.clock import MovableClock
from holdfast.schedules.defining import define
from holdfast.schedules.setting import put
from holdfast.schedules.ticker import Ticker
from holdfast.store.plans import schedules
from holdfast.store.statement import Statement
from tests.schedules.outage import Outage

MINUTES, DAY, YEAR = timedelta(minutes=5), timedelta(hours=24), timedelta(days=400)
MATRIX = [
    Outage(count, down, misfire, max_late)
    for count, down in ((70, MINUTES), (250, DAY), (70, YEAR))
    for misfire in ("all", "latest", "skip")
    for max_late in (None, 120.0, 86_400.0)
]


class Place:
    """A database with the schedules of an outage, at its end."""

    def __init__(self, url: str, outage: Outage) -> None:
        self.url, self.outage = url, outage
        self.clock = MovableClock(outage.begin)
        self.app = Holdfast(url, clock=self.clock)
        self.app.handler("due", name="due")(lambda body: None)
        self.app.prepare()
        self.fill()
        self.incarnations = {f"n/{n:06}": self.row(f"n/{n:06}") for n in range(outage.schedules)}
        self.clock.instant = outage.end

    def fill(self) -> None:
        settings, outage = self.app.settings, self.outage

        def many(part: Iterable[int]) -> Any:
            for n in part:
                made = define(
                    settings, f"n/{n:06}", daily(outage.time_of(n)), "due", {"n": n}, misfire=outage.misfire,  # type: ignore[arg-type]
                    cap=None, max_late=outage.max_late,
                )  # fmt: skip
                yield from put(made, None)

        for start in range(0, outage.schedules, 1000):
            self.app.store.run(many(range(start, min(start + 1000, outage.schedules))))

    def row(self, name: str) -> UUID:
        found = self.app.store.read(schedules.get(name))
        assert found is not None
        return found.incarnation

    def stored(self) -> list[UUID]:
        """The ids of all messages, in the order in which a worker claims them."""
        table = "holdfast_message" if self.app.store.has_one_writer else "holdfast.message"

        def plan() -> Any:
            rows = yield Statement(f"select id from {table} where queue = 'due' order by claimable_at, seq")
            return [UUID(str(id)) for (id,) in rows]

        found: list[UUID] = self.app.store.run(plan())
        return found

    def ticker(self) -> Ticker:
        """A worker of another process, as far as the database can see: with connections of its own."""
        return Ticker(Holdfast(self.url, clock=self.clock).store, self.clock, None, list)

    def check(self) -> None:
        wanted = self.outage.ids(self.incarnations)
        found = self.stored()
        assert len(found) == len(set(found)), "doubled"
        assert set(found) == set(wanted)
        moments = {id: place for place, id in enumerate(wanted)}
        assert [moments[id] for id in found] == sorted(moments[id] for id in found)
        left = [
            len(self.outage.moments(n)) - len(self.outage.expected(n)) for n in range(self.outage.schedules)
        ]
        for n in range(0, self.outage.schedules, 17):  # and what was left out is noted
            row = self.app.store.read(schedules.get(f"n/{n:06}"))
            assert row is not None
            assert (row.fired, row.left_out) == (len(self.outage.expected(n)), left[n])


def drain(ticker: Ticker, failures: list[BaseException]) -> None:
    try:
        for _ in range(100_000):
            done = ticker()
            if done.did == 0 and (done.next_at is None or done.next_at > done.now):
                return
    except BaseException as error:
        failures.append(error)
    finally:
        ticker.store.close()


def together(place: Place, workers: int) -> None:
    failures: list[BaseException] = []
    threads = [threading.Thread(target=drain, args=(place.ticker(), failures)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.covers("B1", "B2", "B3", "B5", "B36", "B43", "X17", "X19", "X55")
@pytest.mark.one_postgres
@pytest.mark.parametrize("outage", MATRIX, ids=lambda o: f"{o.schedules}-{o.down}-{o.misfire}-{o.max_late}")
def test_two_workers_that_start_together_fire_exactly_what_was_missed(url: str, outage: Outage) -> None:
    place = Place(url, outage)
    together(place, 2)
    place.check()
    place.app.close()


@pytest.mark.covers("X17", "B43")
@pytest.mark.one_postgres
def test_ten_thousand_are_drained(url: str) -> None:
    place = Place(url, Outage(10_000, DAY, "all", None))
    together(place, 2)
    place.check()
    place.app.close()


@pytest.mark.faults("recurrence")
@pytest.mark.one_postgres
@pytest.mark.parametrize("misfire", ["all", "latest", "skip"])
def test_a_hundred_thousand_are_drained(url: str, misfire: str) -> None:
    place = Place(url, Outage(100_000, DAY, misfire, None))
    together(place, 8)
    place.check()
    place.app.close()


# -- killed with -9

CHILD = """
import sys
from datetime import datetime
from holdfast import Holdfast
from holdfast.clock import MovableClock
from holdfast.schedules import ticker
from holdfast.schedules.ticker import Ticker
ticker.AT_ONCE = 50
clock = MovableClock(datetime.fromisoformat(sys.argv[2]))
step = Ticker(Holdfast(sys.argv[1], clock=clock).store, clock, None, list)
while True:
    print("tick", flush=True)
    done = step()
    if done.did == 0 and (done.next_at is None or done.next_at > done.now):
        break
print("over", flush=True)
"""


def storm(place: Place, kills: int, seed: int) -> int:
    """Two processes at a time; each is killed after a few ticks and a random moment. Returns how many were killed."""
    dice, killed = random.Random(seed), 0
    command = [sys.executable, "-c", CHILD, place.url, place.outage.end.isoformat()]
    for round in range(kills + 1):
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ.copy(), text=True)
            for _ in range(2)
        ]
        for child in children:
            assert child.stdout is not None
            if round < kills:
                for _ in range(dice.randint(1, 3)):
                    child.stdout.readline()
                threading.Event().wait(dice.random() * 0.02)
                child.send_signal(signal.SIGKILL)
                killed += 1
            else:
                assert "over" in child.stdout.read()
            child.wait(60)
    return killed


@pytest.mark.covers("X18", "B3")
@pytest.mark.one_postgres
def test_workers_that_are_killed_lose_and_double_nothing(url: str) -> None:
    place = Place(url, Outage(250, timedelta(days=6), "all", None))
    assert storm(place, kills=3, seed=7) == 6
    place.check()
    place.app.close()


@pytest.mark.faults("recurrence")
@pytest.mark.parametrize("seed", range(5))
def test_workers_that_are_killed_often_lose_and_double_nothing(url: str, seed: int) -> None:
    place = Place(url, Outage(2_000, timedelta(days=6), "all", None))
    storm(place, kills=25, seed=seed)
    place.check()
    place.app.close()
