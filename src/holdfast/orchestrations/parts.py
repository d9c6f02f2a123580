"""Parts of turns that go on, stored together: one round trip and one commit for all that wait for one.

While one is on its way, others gather for the next. So many instances need as few commits as one. If they are many,
each commit takes half of them: their code runs on while the database stores the other half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import StoreUnavailable
from ..store import Store
from ..store.moments import moment_of
from ..store.plans import instances
from ..store.plans.instances import Part

MOST = 1_000  # parts in one commit
BYTES = 4 * 1024 * 1024
FEW = 64  # that are not divided
TRIES = 20  # of a commit that was in conflict with another


class Parts:
    """Of one event loop."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self.store = store
        self._waiting: list[tuple[Part, asyncio.Future[bool]]] = []
        self._storing: asyncio.Task[None] | None = None
        self._stored = 0  # with the last commit: these come again

    async def put(self, part: Part) -> bool:
        """Store it. False: it was refused, since its lease is lost or another worker was before."""
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((part, stored))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        return await stored

    async def _store(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                await self._send(batch)
                self._stored = len(batch)
                if not self._waiting:
                    # Those that wait for these run first, and come with their next part.
                    await asyncio.sleep(0)
        finally:
            self._storing = None

    async def _send(self, batch: list[tuple[Part, asyncio.Future[bool]]]) -> None:
        try:
            found = await self._once([part for part, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for each in batch:  # one of them is refused: the others are not to blame
                    await self._send([each])
                return
            for _, stored in batch:
                if not stored.done():
                    stored.set_exception(error)
            return
        for part, stored in batch:
            if not stored.done():
                stored.set_result(part.id in found)

    async def _once(self, parts: list[Part]) -> set[str]:
        for tries in range(1, TRIES + 1):
            try:
                found: set[str] = await self.store().arun(instances.store_parts(parts))
                return found
            except Exception as error:
                if moment_of(error) != "again" or tries == TRIES:
                    raise
                await asyncio.sleep(0.001 * tries)
        raise AssertionError("unreachable")

    def _next(self) -> list[tuple[Part, asyncio.Future[bool]]]:
        """The next ones, without those whose turns were stopped meanwhile."""
        batch: list[tuple[Part, asyncio.Future[bool]]] = []
        room = BYTES
        waiting, self._waiting = self._waiting, []
        most = min(MOST, max(FEW, (len(waiting) + self._stored + 1) // 2))
        for place, (part, stored) in enumerate(waiting):
            if stored.done():
                continue
            room -= len(part.body)
            if batch and (room < 0 or len(batch) >= most):
                self._waiting = waiting[place:]
                break
            batch.append((part, stored))
        return batch
