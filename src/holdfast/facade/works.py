"""Working: a worker inside this process, the tables that it needs, and a worker written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from ..model.message import NewMessage, Reason
from ..model.work import Batch, Leased, Settlement
from ..telemetry.sheet import Sheet
from .publishes import Publishes

if TYPE_CHECKING:
    from ..worker.board import Board
    from ..worker.embedded import Running
    from ..worker.loop import Worker
    from .working import Working


class Works(Publishes, Protocol):
    """`app.running` and what belongs to it; `app.process_work_batch` for a worker of your own."""

    @property
    def _working(self) -> Working: ...

    def worker(
        self, *, queues: Iterable[str] | None = None, name: str | None = None, until_idle: bool = False,
        board: Board | None = None, sheet: Sheet | None = None, quarantine: bool = False, embedded: bool = True,
    ) -> Worker:  # fmt: skip
        """A worker of this application's handlers; `await worker.run()`. It counts on the sheet, if there is one.

        `queues`: only these; `until_idle`: it ends when nothing is claimable. The others are for worker processes.
        """
        return self._working.worker(
            queues, name, board, sheet, quarantine=quarantine, embedded=embedded, until_idle=until_idle
        )

    def running(
        self, *, queues: Iterable[str] | None = None, name: str | None = None, until_idle: bool = False
    ) -> AbstractAsyncContextManager[Running]:
        """Work inside this process while the block lasts: `async with app.running() as running:`.

        Errors at the start are raised here. A worker that ends later is started again; see `running.health`.
        """
        return self._working.running(queues, name, until_idle)

    def load(self) -> None:
        """Load the code that a worker of this application needs: once, before processes are forked."""
        _ = self._working, self.orchestrations

    def prepare(self) -> None:
        """Make sure that the tables are there (SQLite: make them) and that the handlers are subscribed."""
        self.store.check()
        self.publishing.subscribe()
        if self._schedules:
            self.store.run(self._recurring.store_declared())

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
        return self._by_hand.done(leased, emits)

    def failed(
        self, leased: Leased, completed: int, error: str | BaseException, *, reason: Reason | None = None
    ) -> Settlement:
        """The settlement of a failure: the flags of its completed steps, and the error.

        `reason` is the kind of failure (docs/failure.md); by default it is found from the type of the exception.
        """
        return self._by_hand.failed(leased, completed, error, reason)

    def release(self, leased: Leased) -> Settlement:
        """Let a message that was not started out of the order of its stream; nothing else changes."""
        return self._by_hand.release(leased)

    def give_back(self, leased: Leased, *, delay: float = 0.0, refund: bool = True) -> Settlement:
        """Hand a message back that was not started."""
        return self._by_hand.give_back(leased, delay, refund)
