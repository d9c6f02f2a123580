"""Times in which the database cannot be used: logged once when one begins and once when it is over.

The worker's loop and its heartbeat see the same outage, each many times, and log it as one.
"""

from __future__ import annotations

import threading
from datetime import datetime

from ..clock import Clock, wall_clock
from ..store.plans.sequences import Mended
from ..telemetry.logs import Log

log = Log("holdfast.worker")


class Trouble:
    """The trouble that one worker had with its database."""

    def __init__(self, clock: Clock, worker: str) -> None:
        self.clock, self.worker = clock, worker
        self.since: datetime | None = None  # when the current outage began
        self.over_at: datetime | None = None  # when the last one ended
        self.error: str | None = None  # of the last one, also when it is over
        self.timeouts = 0  # statement timeouts that are not stored yet
        self._story: str | None = None
        self._waited = 0.0
        self._waiting: set[str] = set()
        self._began = 0.0
        self._lock = threading.Lock()

    def met(self, who: str, error: Exception) -> None:
        """A part of the worker waits for the database."""
        with self._lock:
            self.error = str(error)
            self._waiting.add(who)
            if self.since is not None:
                return
            self.since, self._began = wall_clock(), self.clock.monotonic()
        log.warning(
            "store.unavailable",
            "The database cannot be used at the moment, and this worker waits: %(error)s",
            error=error,
            worker=self.worker,
        )

    def over(self, who: str) -> None:
        """A statement succeeded. The outage is over when that is true for all parts that waited."""
        if not self._waiting:  # nearly always
            return
        with self._lock:
            self._waiting.discard(who)
            if self._waiting or self.since is None:
                return
            seconds = self.clock.monotonic() - self._began
            self.since, self.over_at = None, wall_clock()
            self._waited = max(self._waited, seconds)
            self._story = f"It waited {seconds:.1f} s for the database: {self.error}"
        log.warning(
            "store.available",
            "The database can be used again, after %(seconds).1f s",
            seconds=seconds,
            worker=self.worker,
        )

    def waited(self) -> float:
        """For how many seconds the database could not be used, at the longest, since this was last asked."""
        with self._lock:
            waited, self._waited = self._waited, 0.0
        return waited

    def unreported(self) -> tuple[str, int] | None:
        """What is not stored for operators yet: the last outage that is over, and the number of timeouts."""
        if self._story is None and not self.timeouts:
            return None
        with self._lock:
            story, self._story = self._story, None
            timeouts, self.timeouts = self.timeouts, 0
        return (
            story or "An exchange took longer than the database allows and was done in smaller parts.",
            timeouts,
        )


def log_mended(mended: Mended) -> None:
    """Log what a worker had to repair at its start."""
    if mended.raised:
        log.warning(
            "sequences.raised",
            "Sequences were behind the stored numbers, as after a switch-over or a restore, and were raised: %(names)s."
            " Streams in which new messages were placed before older ones, and have been put behind them: %(streams)d",
            names=", ".join(f"{name} from {before} to {after}" for name, before, after in mended.raised),
            streams=len(mended.streams),
        )
