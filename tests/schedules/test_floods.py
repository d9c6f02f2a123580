"""After a long absence the flood is bounded: in what fires, in each tick, in memory. What is left out is noted.

The same in full size is in `make faults PART=downtime`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest

from holdfast import Holdfast, every
from holdfast.clock import MovableClock
from holdfast.schedules import ticker
from holdfast.schedules.defining import define
from holdfast.schedules.setting import put
from holdfast.schedules.ticker import AT_ONCE, Ticker
from tests.schedules.downtime import connected, query
from tests.worker.test_memory import MEGABYTE, memory_of

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
AWAY = timedelta(days=400)
STEP = timedelta(seconds=5)
MISSED = AWAY // STEP


class Flood:
    """Schedules that occur every few seconds, and a worker's tick after a long absence."""

    def __init__(self, url: str, schedules: int, seconds: int, **policy: Any) -> None:
        self.url, self.clock = url, MovableClock(BEGIN)
        self.app = Holdfast(url, clock=self.clock)
        self.app.handler("due", name="due")(lambda body: None)
        self.app.migrate()
        self.app.prepare()
        self.names = [f"n/{n:04}" for n in range(schedules)]
        rule = every(seconds=seconds)

        def many() -> Any:
            for n, name in enumerate(self.names):
                yield from put(define(self.app.settings, name, rule, "due", {"n": n}, **policy), None)

        self.app.store.run(many())
        self.step = Ticker(self.app.store, self.clock, None, list)
        with connected(url) as db:
            rows = query(db, "select name, incarnation from {schedule}")
        self.incarnations = {name: UUID(str(id)) for name, id in rows}

    def ticks(self) -> Iterator[int]:
        """Ticks until nothing is due: how many messages there are in each."""
        heard = 0

        def hear(fired: Any) -> None:
            nonlocal heard
            heard += 1

        self.step.hear = hear
        while True:
            heard = 0
            done = self.step()
            if not done.did:
                assert done.next_at is not None
                assert done.next_at > done.now
                return
            yield heard

    def fired(self) -> list[UUID]:
        """What was fired, in the sequence in which it was."""
        with connected(self.url) as db:
            return [
                UUID(str(id))
                for (id,) in query(db, "select id from {message} where queue = 'due' order by seq")
            ]

    def take(self) -> list[UUID]:
        """The same; it is taken away, as workers do."""
        found = self.fired()
        with connected(self.url) as db:
            query(db, "delete from {message}")
        return found

    def wanted(self, moments: list[datetime]) -> list[UUID]:
        """The ids of all occurrences at these moments, the oldest first, and those of one moment by name."""
        keys = [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments]
        return [uuid5(self.incarnations[name], key) for key in keys for name in self.names]

    def notes(self) -> list[tuple[Any, ...]]:
        with connected(self.url) as db:
            return query(
                db, "select name, first_key, last_key, count, why from {schedule_note} order by name"
            )


def drown(url: str, schedules: int, cap: int, misfire: str) -> None:
    """400 days of every 5 s: the newest are kept, the rest of each schedule is one line."""
    flood = Flood(url, schedules, 5, misfire=misfire, cap=cap)
    flood.clock.instant = BEGIN + AWAY
    counts = list(flood.ticks())
    kept = cap if misfire == "all" else 1
    newest = [flood.clock.instant - STEP * n for n in reversed(range(kept))]
    assert sum(counts) == schedules * kept
    assert max(counts) <= AT_ONCE
    assert flood.fired() == flood.wanted(newest)
    first, last = BEGIN + STEP, newest[0] - STEP
    why = "over the cap" if misfire == "all" else "not the latest"
    assert flood.notes() == [
        (name, f"{first:%Y-%m-%dT%H:%M:%SZ}", f"{last:%Y-%m-%dT%H:%M:%SZ}", MISSED - kept, why)
        for name in flood.names
    ]
    flood.app.close()


@pytest.mark.covers("X55")
@pytest.mark.one_postgres
@pytest.mark.parametrize(("misfire", "cap"), [("latest", 100), ("all", 3)])
def test_400_days_of_every_5_seconds_are_capped_and_noted(url: str, misfire: str, cap: int) -> None:
    drown(url, 1000, cap, misfire)


@pytest.mark.faults("downtime")
@pytest.mark.one_postgres
def test_400_days_with_the_usual_cap(url: str) -> None:
    drown(url, 1000, 100, "all")


def catch_up(url: str, schedules: int, each: int) -> None:
    """Without a cap all of them fire, in parts: no tick is larger than another, and the process does not grow."""
    flood = Flood(url, schedules, 1, misfire="all", cap=None)
    flood.clock.advance(seconds=each)
    grown, taken = list[int](), list[UUID]()
    size = 0
    for count in flood.ticks():
        assert 0 < count <= AT_ONCE
        size += count
        if size >= schedules * each // 20:
            taken += [UUID(int=id.int) for id in flood.take()]
            size = 0
            grown.append(memory_of(os.getpid()) - len(taken) * 100)
    taken += flood.take()
    wanted = flood.wanted([BEGIN + timedelta(seconds=n + 1) for n in range(each)])
    moment = {id: n // schedules for n, id in enumerate(wanted)}
    assert len(taken) == len(wanted)
    assert [moment[id] for id in taken] == sorted(moment.values())  # those of one moment in any sequence
    assert flood.notes() == []
    assert max(grown[5:]) < max(grown[:5]) + 8 * MEGABYTE
    flood.app.close()


@pytest.mark.covers("X17", "X19")
@pytest.mark.one_postgres
def test_what_was_missed_is_caught_up_in_parts_of_one_size(url: str) -> None:
    catch_up(url, 7, 1000)


@pytest.mark.faults("downtime")
@pytest.mark.one_postgres
def test_a_million_missed_are_caught_up_in_parts_of_one_size(url: str) -> None:
    catch_up(url, 7, 143_000)


@pytest.mark.covers("X19", "X55")
@pytest.mark.one_postgres
def test_what_is_left_out_holds_up_nobody_and_changes_no_sequence(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More are due than are read at once. The newest of each would fire, and what was not read is older than that."""
    monkeypatch.setattr(ticker, "AT_ONCE", 20)
    flood = Flood(url, 50, 5, misfire="latest")
    flood.app.set_schedule("slow", every(seconds=90), "due", misfire="all", cap=None)
    flood.clock.advance(seconds=3600)
    assert all(count <= 20 for count in flood.ticks())
    with connected(url) as db:
        due = [at for (at,) in query(db, "select due_at from {message} where queue = 'due' order by seq")]
        rows = query(db, "select name, fired, left_out from {schedule} order by name")
    assert due == sorted(due)
    assert rows == [*((name, 1, 719) for name in flood.names), ("slow", 40, 0)]
    flood.app.close()


@pytest.mark.one_postgres
def test_stored_times_that_are_too_early_hold_up_nobody(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change of zone data, or by hand. More than are read at once waited for what was not read, for ever."""
    monkeypatch.setattr(ticker, "AT_ONCE", 20)
    flood = Flood(url, 50, 3600, misfire="all")
    flood.clock.advance(hours=1.5)
    early = "'2026-03-01 00:00:01+00'" if not url.startswith("sqlite") else "1772323201000000"
    with connected(url) as db:
        query(db, f"update {{schedule}} set next_at = {early}")
    assert all(count <= 20 for count in flood.ticks())
    assert sorted(flood.fired()) == sorted(flood.wanted([BEGIN + timedelta(hours=1)]))
    flood.app.close()


@pytest.mark.one_postgres
def test_rules_that_occur_again_before_they_are_looked_at_again_fire(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time goes on, and each tick finds that a newer one is the latest."""
    monkeypatch.setattr(ticker, "AT_ONCE", 20)
    flood = Flood(url, 200, 5, misfire="latest")
    flood.clock.advance(days=1)
    for _ in range(30):
        flood.step()
        flood.clock.advance(seconds=5)
    assert len(flood.fired()) >= 200
    flood.app.close()
