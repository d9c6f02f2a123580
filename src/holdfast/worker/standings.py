"""Reports to operators how a worker's connections to brokers are: at once when one breaks or opens, else every 10 s.

It writes at most once a second, and every ten seconds when nothing changes. If that fails it tries again: nothing of
the engine depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from ..clock import Clock
from ..model.endpoint import Connection, Standing
from ..store import Store
from ..store.plans import endpoints
from ..telemetry import Watch

LOOKS_EVERY = 1.0
REPORTS_EVERY = 10.0
LAST_WORDS = 0.4  # seconds


class Companion(Protocol):
    """What runs beside a worker until it stops: an inbox."""

    async def run(self, stopping: asyncio.Event) -> None: ...


@runtime_checkable
class Watched(Protocol):
    """A consumer that reports to a watch about its broker."""

    watch: Watch | None


def watched(things: Iterable[object], watch: Watch | None) -> None:
    """From now on they report to this watch what they send and receive."""
    for each in things:
        if isinstance(each, Watched):
            each.watch = watch


def reporting(
    store: Store, clock: Clock, number: int, things: Iterable[object]
) -> list[Coroutine[Any, Any, None]]:
    """A reporter for those of them that are connections; none, if there is none."""
    connections = [each for each in things if isinstance(each, Connection)]
    return [Standings(store, clock, connections).run(number)] if connections else []


class Standings:
    """The connections of one worker, as last reported."""

    def __init__(self, store: Store, clock: Clock, connections: Sequence[Connection]) -> None:
        self._store, self._clock, self._connections = store, clock, connections
        self._reported: dict[str, tuple[float, tuple[object, ...]]] = {}
        self._is_met = False

    async def run(self, number: int) -> None:
        """Report until cancelled; then the worker's rows are removed."""
        try:
            while True:
                with suppress(Exception):  # whatever it is, work continues, and the next report comes soon
                    await self.report(number)
                await asyncio.sleep(LOOKS_EVERY)
        finally:
            with suppress(Exception):
                async with asyncio.timeout(LAST_WORDS):
                    await self._store.arun(endpoints.leave(number))

    async def report(self, number: int) -> None:
        """What has changed since the last report, or was reported long ago."""
        if not self._is_met:
            await self._store.arun(endpoints.meet([each.endpoint for each in self._connections]))
            self._is_met = True
        now = self._clock.monotonic()
        news = self._news(now)
        if news:
            await self._store.arun(endpoints.report(number, list(news.items())))
            self._reported.update((queue, (now, each.reported)) for queue, each in news.items())

    def _news(self, now: float) -> dict[str, Standing]:
        found = {}
        for each in self._connections:
            queue, standing = each.endpoint.queue, each.standing()
            at, reported = self._reported.get(queue, (float("-inf"), ()))
            if reported != standing.reported or now - at >= REPORTS_EVERY:
                found[queue] = standing
        return found
