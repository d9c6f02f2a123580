"""Drains of one worker: each from when it finds something due until it finds nothing and has nothing in hand."""

from __future__ import annotations

from ..clock import Clock
from ..model.drain import DrainSummary
from ..model.work import Batch, Report
from ..rules.pacing import Pacing
from ..telemetry import Watch
from ..telemetry.logs import Log
from .endings import Endings
from .ticking import Ticking

log = Log("holdfast.worker")


class Drains:
    """Counts what is handed in. `total`: what the worker has done since its start."""

    def __init__(self, endings: Endings, clock: Clock, watch: Watch | None, worker: str) -> None:
        self._endings, self._clock, self._watch, self._worker = endings, clock, watch, worker
        self._began_at = self._first_at = clock.monotonic()
        self._before = (0, 0)
        self._handed_in = 0  # settlements that the store has taken
        self._is_first, self._is_draining = True, False

    def exchanged(self, report: Report, batch: Batch, pacing: Pacing, ticking: Ticking) -> None:
        """An exchange was made. This is called often, so it counts no single messages."""
        self._handed_in += len(report.settlements) - len(batch.lost)
        if batch.work:
            if not self._is_draining:
                self._is_draining, self._began_at = True, self._clock.monotonic()
            return
        if (
            (self._is_draining or self._is_first)
            and (report.want or report.looks)
            and pacing.idle
            and ticking.is_quiet
        ):
            self._end()

    def _end(self) -> None:
        processed, failed = self._counts()
        drained = DrainSummary(
            processed - self._before[0],
            failed - self._before[1],
            self._clock.monotonic() - self._began_at,
            self._is_first,
        )
        self._is_first, self._is_draining, self._before = False, False, (processed, failed)
        if self._watch is not None:
            self._watch.drained(drained)
        log_drained(drained, self._worker)

    def _counts(self) -> tuple[int, int]:
        ended = self._endings
        return self._handed_in - ended.others + ended.completed, ended.failures

    @property
    def total(self) -> DrainSummary:
        """Everything that this worker has done so far."""
        processed, failed = self._counts()
        return DrainSummary(processed, failed, self._clock.monotonic() - self._first_at, True)


def log_drained(each: DrainSummary, worker: str) -> None:
    """Log what a worker did between finding work and finding none; the first time also if there was none."""
    start = "At its start " if each.is_first else ""
    text = (
        f"{start}%(processed)d messages were handled and %(failed)d failed in %(duration_ms)d ms, "
        "%(per_second).2f a second; nothing is due"
        if each.processed or each.failed
        else f"{start}nothing was due"
    )
    log.info(
        "drain.ended", text, processed=each.processed, failed=each.failed, duration_ms=each.duration_ms,
        per_second=each.per_second, start=each.is_first, worker=worker,
    )  # fmt: skip
