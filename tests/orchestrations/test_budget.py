"""A turn has a budget for its own code: an endless loop ends, its neighbours do not notice, nothing of it is stored."""

# ruff: noqa: ASYNC251 - that is what is tested

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.orchestrations.budget import Alarm, Budget, Unlimited, Watchdog
from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.flow import Flow
from holdfast.orchestrations.journal import Answered, Started
from holdfast.orchestrations.outcome import Overrun, Turn
from holdfast.orchestrations.turn import Instance
from tests.orchestrations.engine import START

SECONDS = 0.05
START_OF = Started("m", 1, None, "i/0")


@activity()
def pack(item: str) -> str:
    return item


@orchestration()
async def endless(flow: Flow) -> None:
    await pack("a")
    while True:
        pass


@orchestration()
async def stubborn(flow: Flow) -> None:
    """Swallows the alarm, and goes on."""
    await pack("a")
    for _ in range(3):
        try:
            while True:
                pass
        except BaseException:
            break
    await pack("b")


@orchestration()
async def sleeps(flow: Flow) -> None:
    await pack("a")
    time.sleep(30)


@orchestration()
async def matches(flow: Flow) -> None:
    await pack("a")
    re.match(r"(a+)+$", "a" * 40 + "b")


@orchestration()
async def in_a_task(flow: Flow) -> Any:
    return await flow.map(spin, [1, 2, 3])


async def spin(number: int) -> int:
    await pack(str(number))
    while True:
        pass


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm(SECONDS).install()
    yield alarm
    alarm.uninstall()


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    watchdog = Watchdog(SECONDS).install()
    yield watchdog
    watchdog.uninstall()


def second_turn(program: Any, budget: Budget) -> Any:
    instance = Instance(program.program, "i", budget=budget)
    try:
        assert isinstance(instance.turn([START_OF], START), Turn)
        return instance.turn([Answered("m1", 2, 0, 1, '"a"')], START)
    finally:
        instance.close()


@pytest.mark.covers("D14")
@pytest.mark.parametrize(
    "program", [endless, stubborn, sleeps, matches, in_a_task], ids=lambda each: each.name
)
def test_an_alarm_ends_the_turn(program: Any, alarm: Alarm) -> None:
    """H25"""
    outcome = second_turn(program, alarm)
    if program is sleeps and sys.version_info >= (3, 13):  # refused by name there
        assert isinstance(outcome, Turn)
        assert outcome.end is not None
        assert outcome.end.failure is not None
        assert outcome.end.failure.text.startswith("time.sleep cannot be used")
        return
    assert isinstance(outcome, Overrun)
    assert "longer than its budget" in outcome.why


@pytest.mark.parametrize("program", [endless, stubborn, in_a_task], ids=lambda each: each.name)
def test_a_watchdog_ends_the_turn_in_any_thread(program: Any, watchdog: Watchdog) -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(second_turn(program, watchdog))
        found.append(sum(range(100_000)))  # nothing is raised here any more

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert isinstance(found[0], Overrun)
    assert len(found) == 2


def test_a_budget_is_for_one_turn(alarm: Alarm, watchdog: Watchdog) -> None:
    for budget in (alarm, watchdog, Unlimited()):
        instance = Instance(endless.program, "i", budget=budget)
        for _ in range(3):
            time.sleep(SECONDS / 2)
            assert isinstance(instance.turn([START_OF], START), Turn)
        instance.close()


def test_the_timer_of_somebody_else_is_put_back() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0.2)
    alarm = Alarm(5.0).install()
    try:
        instance = Instance(endless.program, "i", budget=alarm)
        assert isinstance(instance.turn([START_OF], START), Turn)
        instance.close()
        until = time.monotonic() + 10
        while not rung and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        alarm.uninstall()
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, interval)
    assert rung == [signal.SIGALRM]


def test_replay_is_outside_the_budget() -> None:
    class Counting(Unlimited):
        begun = 0

        def begin(self) -> None:
            self.begun += 1

    budget = Counting()
    instance = Instance(endless.program, "i", budget=budget)
    turn = instance.turn([START_OF], START)
    assert isinstance(turn, Turn)
    again = Instance(endless.program, "i", budget=budget)
    begun = budget.begun
    again.load([turn.row])
    again.catch_up()
    assert budget.begun == begun
    instance.close()
    again.close()
