"""Deadlines that pass, as a step of any worker's turn (worker/ticking.py): on time, and looked at once a second anyway.

There is no leader. Two workers that sweep at once get different requests, and a crash before the commit leaves
everything as it was. If the database refuses a sweep, each request is swept alone: one that cannot be ended is put off,
and the others end in time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ..errors import StoreUnavailable
from ..model.work import Ticked
from ..store import Store
from ..store.plans import requests
from ..telemetry.logs import Log
from . import verbs
from .hooks import Pen
from .verbs import Swept

log = Log("holdfast.requests")

BEHIND = timedelta(microseconds=1)  # a result that comes exactly at the deadline is in time
EARLY_MAX = 500
FEW = 50  # requests that are swept alone in one step
PUT_OFF = 60.0  # seconds until one that was refused is tried again


def step(store: Callable[[], Store], pen: Pen) -> Callable[[], Ticked]:
    """The step. With nothing due it reads one entry of an index."""

    def sweep() -> Ticked:
        here = store()
        now, due = here.read(requests.next_due())
        if due is None or due >= now:
            return Ticked(0, now, _look_at(due))
        swept = _swept(here, pen)
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
            _look_at(due),
            tuple(sorted(swept.queues)),
        )

    return sweep


def _look_at(due: datetime | None) -> datetime | None:
    """When something is to be done; None: nothing is, or not before the end of the calendar."""
    return None if due is None or due >= datetime.max.replace(tzinfo=UTC) else due + BEHIND


def _swept(store: Store, pen: Pen) -> Swept:
    try:
        return store.run(verbs.sweep(pen))
    except StoreUnavailable:
        raise
    except Exception as error:  # the database refused something of it, or a row cannot be read
        log.warning(
            "sweep.refused", "A sweep was refused; each request is swept alone: %(error)s", error=error
        )
    ended, delayed, queues = 0, 0, frozenset[str]()
    for _ in range(FEW):
        one = _swept_alone(store, pen)
        if one is None:
            continue
        if not one.ended and not one.delayed:
            break
        ended, delayed, queues = ended + one.ended, delayed + one.delayed, queues | one.queues
    return Swept(ended, delayed, queues)


def _swept_alone(store: Store, pen: Pen) -> Swept | None:
    """The request whose time came first; None: it was put off."""
    try:
        return store.run(verbs.sweep(pen, 1))
    except StoreUnavailable:
        raise
    except Exception as error:
        log.error(
            "request.refused",
            "Request %(request)s cannot be ended, and is tried again in %(seconds)d s: %(error)s",
            request=store.run(requests.put_off(PUT_OFF)),
            seconds=PUT_OFF,
            error=error,
        )
        return None


def catch_early(store: Store, pen: Pen) -> int:
    """Decide requests whose result was stored while they were not committed yet: a chore, once a minute."""
    waiting = store.read(requests.waiting_early(EARLY_MAX))
    return store.run(verbs.decide_early(waiting, pen)) if waiting else 0
