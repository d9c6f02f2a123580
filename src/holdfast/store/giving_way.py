"""A loop gives way to the thread in which SQLite writes: both need the lock of the interpreter."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

# That a loop waits for plans that run: at a time, and altogether. The thread may wait for others, or for a free core.
PIECE_SECONDS, WAY_SECONDS = 0.005, 0.02


class GivesWay:
    """Lets a loop wait while the thread that writes runs plans.

    Each row that SQLite finds hands the interpreter's lock to whoever wants it, and a busy loop gives it back after
    5 ms. So work on the loop would hold up a transaction, and everybody who waits for the file, many times over.
    """

    __slots__ = ("_is_running", "_left", "_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_running = False
        self._left = 0.0  # seconds that are still waited
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def begin(self) -> None:
        """Plans wait for the thread, or run in it."""
        if not self._is_running:
            self._is_running, self._left = True, WAY_SECONDS

    def end(self, over: bool = True) -> None:
        """They have run; what follows, the commit, needs no lock of the interpreter. `over`: no others wait."""
        with self._lock:
            self._is_running, self._left = not over, WAY_SECONDS
            waiting, self._waiting = self._waiting, []
        for loop, ended in waiting:
            with suppress(RuntimeError):  # the loop may have ended in the meantime
                loop.call_soon_threadsafe(ended.set)

    async def wait(self) -> None:
        """Return when they have run, or soon. If that takes long, nobody waits for the thread any more."""
        await asyncio.sleep(0)
        ended = asyncio.Event()
        with self._lock:
            if not self._is_running:
                return
            self._waiting.append((asyncio.get_running_loop(), ended))
        try:
            async with asyncio.timeout(PIECE_SECONDS):
                await ended.wait()
        except TimeoutError:
            self._left -= PIECE_SECONDS
            if self._left <= 0:
                self._is_running = False
