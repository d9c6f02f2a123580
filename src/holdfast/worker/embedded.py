"""A worker inside an application: started again when it ends, and asked for its health.

The supervisor of `holdfast worker` does the same for its processes. An application has none: if its worker ended for
good, it would keep taking requests and handle no message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..clock import Clock, wall_clock
from ..rules.restarts import pause_before_restart
from ..store.plans import engine
from ..telemetry.logs import Log
from .loop import Worker

log = Log("holdfast")

State = Literal["starting", "working", "waiting", "restarting", "stopped"]


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a worker inside an application. `waiting`: the database cannot be used at the moment."""

    state: State
    since: datetime
    restarts: int = 0  # how often it has ended and was started again
    error: str | None = None  # the last trouble, kept when it is over

    @property
    def is_ready(self) -> bool:
        """Whether messages are handled now: what a readiness probe asks."""
        return self.state == "working"


class Running:
    """The worker of `app.running()`. `worker` is the current one; when it fails, another one is started."""

    def __init__(self, make: Callable[[], Worker], prepare: Callable[[], None], clock: Clock) -> None:
        self._make, self._prepare, self._clock = make, prepare, clock
        self.worker = make()
        self.restarts = 0
        self._stopping = asyncio.Event()
        self._state: State = "starting"
        self._since = wall_clock()
        self._error: str | None = None

    @property
    def started(self) -> asyncio.Event:
        return self.worker.started

    @property
    def health(self) -> Health:
        """Its state now. May be called from any thread; does not ask the database."""
        trouble = self.worker.trouble
        error = self._error if trouble.error is None else trouble.error
        if self._state == "restarting":  # the error that ended it matters more than an earlier wait
            error = self._error
        if self._state != "working":
            return Health(self._state, self._since, self.restarts, error)
        if (waits_since := trouble.since) is not None:
            return Health("waiting", waits_since, self.restarts, error)
        return Health("working", trouble.over_at or self._since, self.restarts, error)

    def stop(self) -> None:
        """Ask for nothing more; messages that run may end within the grace."""
        self._stopping.set()
        self.worker.stop()

    async def run(self) -> None:
        """Work until `stop`. An error before the first start is raised; after later ones it is started again."""
        pause, is_first = 0.0, True
        while True:
            begun = self._clock.monotonic()
            try:
                if not is_first:
                    await asyncio.to_thread(self._prepare)
                    self.worker = self._make()
                await self._run_one()
                self._is("stopped")
                return
            except Exception as error:
                if is_first and not self.worker.started.is_set():
                    self._is("stopped")
                    raise
                is_first = False
                self._error = f"{type(error).__name__}: {error}"
                if self._stopping.is_set():
                    self._is("stopped")
                    if not self.worker.started.is_set():  # it failed before it had any work
                        return
                    raise
                pause = pause_before_restart(pause, self._clock.monotonic() - begun)
                self._is("restarting")
                _log_end(error, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            if self._stopping.is_set():
                self._is("stopped")
                return
            self.restarts += 1

    async def _run_one(self) -> None:
        if self._stopping.is_set():
            self.worker.stop()
        started = asyncio.create_task(self._when_started(self.worker))
        try:
            await self.worker.run()
        finally:
            started.cancel()

    async def _when_started(self, worker: Worker) -> None:
        await worker.started.wait()
        self._is("working")
        if self.restarts:
            story = f"It ended and was started again: {self._error}"
            with suppress(Exception):  # only for the doctor
                await worker.store.arun(engine.note_trouble(worker.number, story, 0, restarts=self.restarts))

    def _is(self, state: State) -> None:
        self._state, self._since = state, wall_clock()


def _log_end(error: Exception, pause: float) -> None:
    """Log the end of an embedded worker at once, not when the application stops."""
    log.critical(
        "worker.ended",
        "The worker inside this application has ended and handles nothing; it is started again in %(pause).1f s",
        pause=pause,
        exc_info=error,
    )
