"""For the tests of those who use Holdfast: a database of its own, a clock moved by hand, and draining."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Protocol

from ..clock import Clock, MovableClock
from ..orchestrations.declared import Activity
from ..orchestrations.declaring import Declaring
from ..worker.loop import Worker

P = ParamSpec("P")

__all__ = ["Application", "Drained", "MovableClock", "testing"]


class Application(Protocol):
    """What is needed of an application to test it."""

    @property
    def _declaring(self) -> Declaring: ...
    def prepare(self) -> None: ...
    def worker(self, *, until_idle: bool) -> Worker: ...
    def moved(self, url: str, clock: Clock) -> AbstractContextManager[None]: ...


class Drained:
    """An application under test: publish, `drain()`, look; `advance()` the clock and drain again."""

    def __init__(self, app: Application, clock: MovableClock) -> None:
        self.app, self.clock = app, clock

    def fake(self, activity: Activity[P, Any], answer: Any) -> None:
        """Let calls of an activity do something else in this test: a function of its input, or a value.

        `t.fake(charge, Receipt("r-1"))`, `t.fake(charge, lambda order: ...)`, `t.fake(charge, CardDeclined())`.
        """
        function: Callable[..., Any]
        if isinstance(answer, BaseException):

            def function(*given: Any, **more: Any) -> Any:
                raise answer

        elif callable(answer):
            function = answer
        else:

            def function(*given: Any, **more: Any) -> Any:
                return answer

        async def awaited(*given: Any, **more: Any) -> Any:
            found = function(*given)
            return await found if inspect.isawaitable(found) else found

        is_async = inspect.iscoroutinefunction(activity.function)
        fake = awaited if is_async else lambda *given, **more: function(*given)
        self.app._declaring.fakes[activity.name] = fake

    def forget(self) -> None:
        """Drop every instance from memory, as a restart would. In tests each turn replays its journal anyway."""
        self.app._declaring.place.memory.forget()

    def drain(self) -> None:
        """Run handlers until nothing is claimable at the time the clock shows."""
        asyncio.run(self.adrain())

    async def adrain(self) -> None:
        self.app.prepare()
        await self.app.worker(until_idle=True).run()

    def advance(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        microseconds: float = 0,
    ) -> None:
        """Move the clock forward: `t.advance(minutes=5)`."""
        self.clock.advance(
            weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds,
            milliseconds=milliseconds, microseconds=microseconds,
        )  # fmt: skip


@contextmanager
def testing(app: Application) -> Iterator[Drained]:
    clock = MovableClock()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-") as folder,
        app.moved(f"sqlite:///{Path(folder) / 'test.db'}", clock),
    ):
        declaring = app._declaring
        memory = declaring.place.memory
        memory.forget()
        memory.forgets = True
        try:
            yield Drained(app, clock)
        finally:
            memory.forgets = False
            declaring.fakes.clear()
