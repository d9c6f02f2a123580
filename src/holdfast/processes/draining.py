"""`holdfast worker --until-idle`: one worker in this process, which works until nothing is due.

It waits for tokens of a rate and for slots, because they become free by themselves; it does not wait for an open
breaker or a paused queue. Messages that it leaves due are counted by queue.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.drain import DrainSummary
from ..model.outage import Outage
from ..store.plans import alerts

if TYPE_CHECKING:
    from ..app import Holdfast

STOPS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Finished:
    """What was done, what is left due in each queue, and the outage that was open, with its summary."""

    drain: DrainSummary
    left: dict[str, int]
    outage: Outage | None


def run_until_idle(app: Holdfast, *, queues: Sequence[str] | None = None) -> Finished:
    """Work until nothing is due. After a signal it hands in what it has, and ends."""
    app.prepare()
    summary = asyncio.run(_work(app, queues))
    outage = app.operations.outages.end()
    rows = app.store.read(alerts.backlog(0.0))
    left = {queue: count for queue, _, _, _, count in rows if count}
    return Finished(summary, left, outage)


async def _work(app: Holdfast, queues: Sequence[str] | None) -> DrainSummary:
    worker = app.worker(queues=queues, until_idle=True)
    worker.gate.waits = True
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, worker.stop)
    try:
        await worker.run()
        return worker.drains.total
    finally:
        for number in STOPS:
            loop.remove_signal_handler(number)
        await app.store.aclose()
