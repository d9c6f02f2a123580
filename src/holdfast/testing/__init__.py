"""For the tests of those who use Holdfast: a database of its own, a clock moved by hand, and draining."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..clock import MovableClock
from ..store import open_store

if TYPE_CHECKING:
    from ..app import Holdfast

__all__ = ["Drained", "MovableClock", "testing"]


class Drained:
    """An application under test: publish, `drain()`, look; `advance()` the clock and drain again."""

    def __init__(self, app: Holdfast, clock: MovableClock) -> None:
        self.app, self.clock = app, clock

    def drain(self) -> None:
        """Run handlers until nothing is claimable at the time the clock shows."""
        asyncio.run(self.adrain())

    async def adrain(self) -> None:
        self.app.prepare()
        await self.app.worker(until_idle=True).run()

    def advance(self, **parts: float) -> None:
        """Move the clock forward: `t.advance(minutes=5)`."""
        self.clock.advance(**parts)


@contextmanager
def testing(app: Holdfast) -> Iterator[Drained]:
    clock = MovableClock()
    before = app.store, app.clock, app.url
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        app.url = f"sqlite:///{Path(folder) / 'test.db'}"
        app.clock = clock
        app.store = open_store(app.url, app.settings, clock)
        app._subscribed, app._hand_worker = False, None
        try:
            yield Drained(app, clock)
        finally:
            app.store.close()
            app.store, app.clock, app.url = before
            app._subscribed, app._hand_worker = False, None
