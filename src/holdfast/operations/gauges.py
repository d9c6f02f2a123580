"""Metrics that are read from the database from time to time, and kept in between.

Counting scans the pending messages. It takes at most a fiftieth of the time, however deep the backlog is and however
often metrics are scraped. `holdfast_survey_age_seconds` says how old the numbers are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..clock import Clock
from ..rules.breaker import State
from ..telemetry.families import Sample
from ..telemetry.logs import Log
from ..telemetry.meter import reason_name
from .results import STATES

log = Log("holdfast.operations")

KEPT_SECONDS = 10.0
SHARE = 50  # a read that took a second is followed by so many seconds without one
BLOCKED_MAX = 1000


class Gauges:
    """The last numbers read from the database, for any number of scrapes."""

    def __init__(self, operations: Callable[[], Any], clock: Clock) -> None:
        self._operations, self._clock = operations, clock
        self._lock = threading.Lock()
        self._samples: list[Sample] = []
        self._looked_at = self._next_at = float("-inf")
        self._took = 0.0
        self._up = False

    def read(self) -> list[Sample]:
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._next_at:
                self._look(now)
                now = self._clock.monotonic()
            about = [_one("holdfast_store_up", float(self._up))]
            if self._samples:
                about.append(_one("holdfast_survey_seconds", self._took))
                about.append(_one("holdfast_survey_age_seconds", now - self._looked_at))
            return [*self._samples, *about]

    def _look(self, begun: float) -> None:
        try:
            self._samples, self._up = survey(self._operations()), True
        except Exception as error:  # the other metrics are still shown
            self._samples, self._up = [], False
            log.warning(
                "metrics.store_down", "Metrics of the database cannot be read: %(error)s", error=error
            )
        self._looked_at = self._clock.monotonic()
        self._took = self._looked_at - begun
        self._next_at = self._looked_at + max(KEPT_SECONDS, SHARE * self._took)


def survey(operations: Any) -> list[Sample]:
    """Read all numbers now."""
    at, queues, workers = operations.queues.survey()
    samples = []
    blocked = Counter(each.queue for each in operations.streams.blocked(limit=BLOCKED_MAX))
    for each in queues:
        labels = (each.name,)
        samples += [
            Sample("holdfast_pending", (each.name, state), (float(each.states.get(state, 0)),))
            for state in STATES
            if state != "unrouted"  # those are in no queue
        ]
        waited = 0.0 if each.oldest_at is None else max(0.0, (at - each.oldest_at).total_seconds())
        samples += [
            Sample("holdfast_oldest_due_seconds", labels, (waited,)),
            Sample("holdfast_dead_letters", labels, (float(each.dead),)),
            Sample("holdfast_blocked_streams", labels, (float(blocked[each.name]),)),
            Sample("holdfast_queue_paused", labels, (float(each.paused_at is not None),)),
        ]
    for count in operations.failure_reasons():
        for where, number in (("pending", count.pending), ("dead", count.dead)):
            samples.append(Sample("holdfast_failed", (where, reason_name(count.reason)), (float(number),)))
    alive = sum(each.is_alive for each in workers)
    samples += [
        _one("holdfast_unrouted", float(sum(each.count for each in operations.unrouted()))),
        Sample("holdfast_workers", ("alive",), (float(alive),)),
        Sample("holdfast_workers", ("silent",), (float(len(workers) - alive),)),
        _one("holdfast_outage", float(operations.outages.is_open())),
    ]
    counts = operations.requests.counts()
    samples += [
        _one("holdfast_requests_overdue", float(counts.overdue)),
        _one("holdfast_requests_late", float(counts.late)),
    ]
    for kind, number in operations.requests.open().items():
        samples.append(Sample("holdfast_requests_open", (kind,), (float(number),)))
    for what, seconds in operations.overdue().items():
        samples.append(Sample("holdfast_housekeeping_lag_seconds", (what,), (seconds,)))
    for breaker in operations.breakers.list():
        samples += [
            Sample("holdfast_breaker_state", (breaker.name, state.value), (float(breaker.state is state),))
            for state in State
        ]
    for group in (operations.destinations, operations.inboxes):
        for name, found in group.connections().items():
            samples += [
                Sample("holdfast_connections", (group.kind, name, state), (float(found[state]),))
                for state in ("open", "broken", "held")
            ]
    return samples


def _one(name: str, value: float) -> Sample:
    return Sample(name, (), (value,))
