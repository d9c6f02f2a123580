"""Deadlines that pass, as a step of any worker's turn (worker/ticking.py): on time, and looked at once a second anyway.

There is no leader. Two workers that sweep at once get different requests, and a crash before the commit leaves
everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ..model.work import Ticked
from ..store import Store
from ..store.plans import requests
from ..telemetry.logs import Log
from . import verbs
from .hooks import Pen

log = Log("holdfast.requests")

BEHIND = timedelta(microseconds=1)  # a result that comes exactly at the deadline is in time
EARLY_MAX = 500


def step(store: Callable[[], Store], pen: Pen) -> Callable[[], Ticked]:
    """The step. With nothing due it reads one entry of an index."""

    def sweep() -> Ticked:
        here = store()
        now, due = here.read(requests.next_due())
        if due is None or due >= now:
            return Ticked(0, now, None if due is None else due + BEHIND)
        swept = here.run(verbs.sweep(pen))
        if swept.ended or swept.delayed:
            log.info(
                "requests.swept",
                "%(timed_out)d requests have timed out, %(delayed)d are delayed",
                timed_out=swept.ended,
                delayed=swept.delayed,
            )
        now, due = here.read(requests.next_due())
        return Ticked(
            swept.ended + swept.delayed,
            now,
            None if due is None else due + BEHIND,
            tuple(sorted(swept.queues)),
        )

    return sweep


def catch_early(store: Store, pen: Pen) -> int:
    """Decide requests whose result was stored while they were not committed yet: a chore, once a minute."""
    waiting = store.read(requests.waiting_early(EARLY_MAX))
    return store.run(verbs.decide_early(waiting, pen)) if waiting else 0
