"""Turns inside a running asyncio loop, and replay in slices.

Python 3.14 refuses to run a task of one loop inside a task of another. So from there on a coroutine of the worker
never runs a turn itself: it asks its loop for a callback, and waits. Older ones do it at once: a callback costs two
rounds of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeAlias, TypeVar

from ..clock import Monotonic
from ..worker.interrupts import is_ctrl_c
from .journal import Arrival
from .loop import NESTS
from .outcome import Overrun, Turn
from .replay import CodeChanged
from .turn import Instance

T = TypeVar("T")
SLICE = 0.010  # seconds of replay, or of inline activities, before others have their turn
SHORT = 0.005  # the same for turns: what waits for the database needs several rounds of the loop to go on
GiveWay: TypeAlias = Callable[[], Awaitable[None]]


async def outside_tasks(function: Callable[[], T]) -> T:
    """What the function gives, called where it may run tasks of another loop."""
    return function() if NESTS else await from_callback(function)


async def from_callback(function: Callable[[], T]) -> T:
    """What the function gives, called from a plain callback of the running loop."""
    host = asyncio.get_running_loop()
    answer: asyncio.Future[T] = host.create_future()

    def run() -> None:
        if answer.cancelled():
            return
        try:
            result = function()
        except BaseException as error:
            if is_ctrl_c(error):
                answer.cancel()
                raise
            answer.set_exception(error)
        else:
            answer.set_result(result)

    host.call_soon(run)
    return await answer


async def taken(
    instance: Instance, arrivals: Sequence[Arrival], clock: Monotonic
) -> CodeChanged | Overrun | None:
    """Replay what is loaded, in slices of 10 ms, and give new arrivals to the code."""
    if instance.is_behind:
        await catch_up(instance, clock)
    return await outside_tasks(lambda: instance.take(arrivals))


async def run_turn(
    instance: Instance, arrivals: Sequence[Arrival], now: datetime, clock: Monotonic
) -> Turn | CodeChanged | Overrun:
    """The same as a whole turn."""
    return await taken(instance, arrivals, clock) or instance.part(now)


async def catch_up(instance: Instance, clock: Monotonic) -> None:
    """Replay what is loaded, in slices of 10 ms."""
    slices = Slices(clock)
    while not await outside_tasks(lambda: instance.catch_up(_after(clock, SLICE))):
        await slices.pause_if_over()


class Slices:
    """Lets others have their turn when one piece of work after another has taken a slice of time.

    `give_way`: how, if what waits for the database is to go on, too (`Store.give_way`). Such slices are short.
    """

    __slots__ = ("_clock", "_give_way", "_seconds", "_until")

    def __init__(self, clock: Monotonic, give_way: GiveWay | None = None) -> None:
        self._clock, self._give_way = clock, give_way
        self._seconds = SLICE if give_way is None else SHORT
        self._until = clock.monotonic() + self._seconds

    @property
    def are_over(self) -> bool:
        return self._clock.monotonic() >= self._until

    async def pause(self) -> None:
        await (asyncio.sleep(0) if self._give_way is None else self._give_way())
        self._until = self._clock.monotonic() + self._seconds

    async def pause_if_over(self) -> None:
        if self.are_over:
            await self.pause()


def _after(clock: Monotonic, seconds: float) -> Callable[[], bool]:
    until = clock.monotonic() + seconds
    return lambda: clock.monotonic() >= until
