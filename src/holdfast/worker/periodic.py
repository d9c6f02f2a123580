"""What a worker does again and again beside its loop, and waiting with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..errors import StoreUnavailable
from ..rules.housekeeping import Rest
from ..telemetry.logs import Log
from .trouble import Trouble

log = Log("holdfast.worker")


async def every(seconds: float, do: Callable[[], Awaitable[float]], trouble: Trouble) -> None:
    """Do something periodically, also after errors. It returns how long to wait at least before the next time."""
    wait = 0.0
    while True:
        await asyncio.sleep(max(seconds, wait))
        try:
            wait = await do()
        except Exception as error:  # tried again soon; work continues
            if isinstance(error, StoreUnavailable) and trouble.since is not None:
                continue  # logged already
            what = getattr(do, "__name__", "").strip("_").replace("_", " ")
            log.warning("beside.failed", "%(what)s failed: %(error)s", what=what, error=error)


def keeping(housekeeping: Callable[[], Rest]) -> Callable[[], Awaitable[float]]:
    """Housekeeping in a thread. While there is more to clean it continues after each rest, not in the next minute."""

    async def keep_house() -> float:
        rest = await asyncio.to_thread(housekeeping)
        while rest.more:
            await asyncio.sleep(rest.seconds)
            rest = await asyncio.to_thread(housekeeping)
        return rest.seconds

    return keep_house


async def until(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
