"""Signals of one name: those that came and were not taken yet, and those who wait for the next.

Each signal goes to one waiter, in the order of both. A waiter that is cancelled after it was given a signal, and before
it could take it, gives it back: a wait that lost a race never takes the signal of the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Box:
    """The signals of one name."""

    __slots__ = ("_waiters", "bodies")

    def __init__(self) -> None:
        self.bodies: deque[str | None] = deque()
        self._waiters: list[asyncio.Future[str | None]] = []

    @property
    def is_awaited(self) -> bool:
        return any(not each.done() for each in self._waiters)

    def put(self, body: str | None) -> None:
        self.bodies.append(body)
        self._hand_over()

    async def take(self) -> str | None:
        """The next signal, in the order in which they came."""
        if self.bodies:
            return self.bodies.popleft()
        mine: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.bodies.appendleft(mine.result())
                self._hand_over()
            else:
                self._waiters.remove(mine)
            raise

    def _hand_over(self) -> None:
        while self.bodies and self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(self.bodies.popleft())
