"""Working: a worker inside this process, the tables that it needs, and a worker written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from ..by_hand import Reported
from ..model.message import NewMessage, Reason
from ..model.work import Batch, Leased, Settlement
from ..requests import sweeping
from ..rules import delivery
from ..schedules import setting
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
from .publishes import Publishes


class Works(Publishes, Protocol):
    """`app.running` and what belongs to it; `app.process_work_batch` for a worker of your own."""

    def worker(
        self, *, queues: Iterable[str] | None = None, name: str | None = None, until_idle: bool = False,
        board: Board | None = None, sheet: Sheet | None = None, quarantine: bool = False, embedded: bool = True,
    ) -> Worker:  # fmt: skip
        """A worker of this application's handlers; `await worker.run()`. It counts on the sheet, if there is one.

        `queues`: only these; `until_idle`: it ends when nothing is claimable. The others are for worker processes.
        """
        from ..operations.keeper import Keeper

        self.orchestrations.place.memory.is_embedded = embedded
        sheet = sheet or self.sheet
        watches: list[Watch] = [] if sheet is None else [Meter(sheet, self.clock, self.settings.late)]
        if self.tracing is not None:
            watches.append(self.tracing)
        companions = [] if quarantine or until_idle else self._intakes(queues)
        duties = Duties(Keeper(lambda: self.operations), self._steps(), companions)
        return Worker(
            self.store, self.handlers, self.settings, self.clock, draft=self.message, queues=queues, name=name,
            board=board, role=Role(quarantine, embedded, until_idle), duties=duties, watch=together(watches),
            around=self._around,
        )  # fmt: skip

    def _steps(self) -> dict[str, Step]:
        """What any worker of this application does by the clock, by name, in this sequence (worker/ticking.py).

        Each step blocks, does a bounded part in one commit and returns when it has more to do.
        """
        return {
            "scheduled": Bringer(self.store, self.clock),
            "requests": sweeping.step(lambda: self.store, self.requests.pen),
            "schedules": Ticker(
                self.store, self.clock, self.keys, lambda: list(self._schedules), self._hear_fired
            ),
        }

    def _intakes(self, queues: Iterable[str] | None) -> list[Companion]:
        """The receivers of a worker's inboxes."""
        if not self.inboxes:
            return []
        from ..inboxes import Intake

        wanted = [each for each in self.inboxes.values() if queues is None or each.queue in queues]
        return [
            Intake(
                each, self.store, self.settings, self.keys, self.clock, self.brokers.attempts(each.connector)
            )
            for each in wanted
        ]

    @asynccontextmanager
    async def running(
        self, *, queues: Iterable[str] | None = None, name: str | None = None, until_idle: bool = False
    ) -> AsyncIterator[Running]:
        """Work inside this process while the block lasts: `async with app.running() as running:`.

        Errors at the start are raised here. A worker that ends later is started again; see `running.health`.
        """
        await asyncio.to_thread(self.prepare)
        running = Running(
            lambda: self.worker(queues=queues, name=name, until_idle=until_idle), self.prepare, self.clock
        )
        task = asyncio.create_task(running.run())
        try:
            await _first(running.started, task)
            yield running
        finally:
            running.stop()
            try:
                await task
            finally:
                self.orchestrations.place.memory.forget()
                await self.store.aclose()

    def prepare(self) -> None:
        """Make sure that the tables are there (SQLite: make them) and that the handlers are subscribed."""
        self.store.check()
        self.publishing.subscribe()
        if self._schedules:
            self.store.run(setting.declare(list(self._schedules.values()), self.keys))

    def migrate(self) -> list[int]:
        """Bring the database to this version; the answer lists the steps taken."""
        steps = self.store.migrate()
        self.publishing.subscribe_anew()
        return steps

    # -- a worker written by hand

    def process_work_batch(
        self,
        settlements: Sequence[Settlement] = (),
        want: Mapping[str, int] | None = None,
        *,
        lease: float | None = None,
        wait: float = 0.0,
        run: int | None = None,
    ) -> Batch:
        """Hand in what ended and get new work, in one round trip: the exchange that our own worker makes.

        `want` maps queues to how many heads to lease, for `lease` seconds; if nothing is there it polls for `wait`
        seconds. Settling a part of a run gives the rest of it back. A message whose last worker vanished is
        handed out alone, when everything else has been handed in (docs/handlers.md).
        """
        return self._by_hand.process(settlements, want or {}, lease, wait, run)

    def done(self, leased: Leased, *emits: NewMessage) -> Settlement:
        """The settlement of a message that was handled."""
        return self._by_hand.conclude(leased, delivery.Returned(0, emits))

    def failed(
        self, leased: Leased, completed: int, error: str | BaseException, *, reason: Reason | None = None
    ) -> Settlement:
        """The settlement of a failure: the flags of its completed steps, and the error.

        `reason` is the kind of failure (docs/failure.md); by default it is found from the type of the exception.
        """
        raised = error if isinstance(error, BaseException) else Reported(error)
        return self._by_hand.conclude(leased, delivery.Raised(raised, completed, reason=reason))

    def release(self, leased: Leased) -> Settlement:
        """Let a message that was not started out of the order of its stream; nothing else changes."""
        return delivery.release(leased)

    def give_back(self, leased: Leased, *, delay: float = 0.0, refund: bool = True) -> Settlement:
        """Hand a message back that was not started."""
        return delivery.give_back(leased, delay, refund)


async def _first(started: asyncio.Event, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        await task
