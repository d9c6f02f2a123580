"""The database's clock is moved by two days, forth and back, while a worker runs: nothing is lost and nothing doubled.

Each database has its own way to know the time; here it is given by the application's clock. What the worker measures
with its own clock is not moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, Holdfast, daily, every
from holdfast.clock import SystemClock, wall_clock
from tests.worker.lab import auntil

TWO_DAYS = timedelta(days=2)


@dataclass
class Moved(SystemClock):
    """The machine's clock, with a database's time that somebody sets."""

    by: timedelta = timedelta(0)

    def now(self) -> datetime:
        return wall_clock() + self.by


@pytest.mark.parametrize("first", [TWO_DAYS, -TWO_DAYS], ids=["forth", "back"])
async def test_nothing_is_lost_or_doubled(url: str, first: timedelta) -> None:
    clock = Moved()
    app = Holdfast(url, clock=clock)
    keys, told = list[tuple[str, str]](), list[Any]()

    @app.handler("due")
    async def handle(body: object, ctx: Context) -> None:
        if ctx.occurrence is None:
            told.append(body)
        else:
            keys.append((ctx.occurrence.name, ctx.occurrence.key))

    def beats() -> int:
        return sum(name == "beat" for name, _ in keys)

    async def looks() -> None:
        """The worker brings over what is scheduled."""
        n = len(told)
        await app.apublish("due", n, delay=0.3, stream="s")
        await auntil(lambda: len(told) > n)

    async def goes_on() -> None:
        """And it fires what falls due once a second."""
        before = beats()
        await looks()
        await auntil(lambda: beats() > before + 1)

    app.prepare()
    begun = clock.now()
    app.set_schedule("daily", daily(f"{begun - timedelta(hours=1):%H:%M:%S}"), "due")
    app.set_schedule("beat", every(seconds=1), "due", misfire="skip")
    app.publish("due", "later", at=begun + timedelta(days=1))
    async with app.running():
        await goes_on()
        clock.by += first
        if first > timedelta(0):
            await auntil(lambda: "later" in told)
            await goes_on()
            clock.by -= first
            await looks()
        else:
            # The next beat is two days ahead. An hour before the clock is right again, nothing has fired twice.
            await looks()
            clock.by += TWO_DAYS - timedelta(hours=1)
            await looks()
            clock.by += timedelta(hours=1)
            await goes_on()
        seen = list(keys)
        clock.by += TWO_DAYS * 2
        await auntil(lambda: "later" in told)
        await goes_on()
    assert len(keys) == len(set(keys)), "an occurrence was fired twice"
    assert keys[: len(seen)] == seen
    days = [key for name, key in keys if name == "daily"]
    first_at = begun - timedelta(hours=1) + timedelta(days=1)  # in the first hour of a day that is the same day
    last = clock.now() - timedelta(hours=1)
    expected = [f"{first_at + timedelta(days=n):%Y-%m-%d}" for n in range((last - begun).days + 1)]
    assert days == expected
    assert [each for each in told if each != "later"] == sorted(each for each in told if each != "later")
    assert told.count("later") == 1
    await app.store.aclose()
