"""How an application works: its worker, with all that runs beside the handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..bodies.drafts import Draft
from ..inboxes import Intake
from ..operations.keeper import Keeper
from ..requests import sweeping
from ..schedules.bringing import Bringer
from ..schedules.ticker import Ticker
from ..telemetry import Watch, together
from ..telemetry.meter import Meter
from ..telemetry.sheet import Sheet
from ..worker.board import Board
from ..worker.embedded import Running
from ..worker.loop import Worker
from ..worker.role import Duties, Role
from ..worker.standings import Companion
from ..worker.ticking import Step

if TYPE_CHECKING:
    from .parts import Parts


class Working:
    """Makes the workers of one application."""

    def __init__(self, app: Parts, draft: Draft, prepare: Callable[[], None]) -> None:
        self.app, self._draft, self._prepare = app, draft, prepare

    def worker(
        self, queues: Iterable[str] | None, name: str | None, board: Board | None, sheet: Sheet | None,
        *, quarantine: bool, embedded: bool, until_idle: bool,
    ) -> Worker:  # fmt: skip
        app = self.app
        app.orchestrations.place.memory.is_embedded = embedded
        sheet = sheet or app.sheet
        watches: list[Watch] = [] if sheet is None else [Meter(sheet, app.clock, app.settings.late)]
        if app.tracing is not None:
            watches.append(app.tracing)
        companions = [] if quarantine or until_idle else self.intakes(queues)
        duties = Duties(Keeper(lambda: app.operations), self.steps(), companions)
        return Worker(
            app.store, app.handlers, app.settings, app.clock, draft=self._draft, queues=queues, name=name,
            board=board, role=Role(quarantine, embedded, until_idle), duties=duties, watch=together(watches),
            around=app._around,
        )  # fmt: skip

    def steps(self) -> dict[str, Step]:
        """What any worker of this application does by the clock, by name, in this sequence (worker/ticking.py).

        Each step blocks, does a bounded part in one commit and returns when it has more to do.
        """
        app = self.app
        return {
            "scheduled": Bringer(app.store, app.clock),
            "requests": sweeping.step(lambda: app.store, app.requests.pen),
            "schedules": Ticker(
                app.store, app.clock, app.keys, lambda: list(app._schedules), app._hear_fired
            ),
        }

    def intakes(self, queues: Iterable[str] | None) -> list[Companion]:
        """The receivers of a worker's inboxes."""
        app = self.app
        wanted = [each for each in app.inboxes.values() if queues is None or each.queue in queues]
        return [
            Intake(each, app.store, app.settings, app.keys, app.clock, app.brokers.attempts(each.connector))
            for each in wanted
        ]

    @asynccontextmanager
    async def running(
        self, queues: Iterable[str] | None, name: str | None, until_idle: bool
    ) -> AsyncIterator[Running]:
        def worker() -> Worker:
            return self.worker(
                queues, name, None, None, quarantine=False, embedded=True, until_idle=until_idle
            )

        await asyncio.to_thread(self._prepare)
        running = Running(worker, self._prepare, self.app.clock)
        task = asyncio.create_task(running.run())
        try:
            await _first(running.started, task)
            yield running
        finally:
            running.stop()
            try:
                await task
            finally:
                self.app.orchestrations.place.memory.forget()
                await self.app.store.aclose()


async def _first(started: asyncio.Event, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        await task
