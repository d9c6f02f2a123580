"""For the tests of those who use Holdfast: a database of its own, a clock moved by hand, and draining."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from ..clock import Clock, MovableClock
from ..worker.loop import Worker

__all__ = ["Application", "Drained", "MovableClock", "testing"]


class Application(Protocol):
    """What is needed of an application to test it."""

    def prepare(self) -> None: ...
    def worker(self, *, until_idle: bool) -> Worker: ...
    def moved(self, url: str, clock: Clock) -> AbstractContextManager[None]: ...


class Drained:
    """An application under test: publish, `drain()`, look; `advance()` the clock and drain again."""

    def __init__(self, app: Application, clock: MovableClock) -> None:
        self.app, self.clock = app, clock

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
        yield Drained(app, clock)
