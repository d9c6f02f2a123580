"""How late messages begin: what is logged about one that begins much later than it was due."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..clock import DatabaseTime, micros
from ..model.message import Y2000
from ..model.work import Leased
from ..rules.outage import lateness, why_late
from ..telemetry.logs import Log
from .attendance import Attendance

log = Log("holdfast.worker")

MOVED_RAW = micros(Y2000)
NEVER_RAW = -(1 << 62)


class Lateness:
    """`before_raw`: messages that were due before it, in microseconds since 2000, are logged when they begin.

    It moves with every exchange, so a message that is on time costs one comparison and no read of a clock.
    """

    __slots__ = ("_time", "attendance", "before_raw", "warn")

    def __init__(self, time: DatabaseTime) -> None:
        self._time = time
        self.warn = float("inf")  # seconds
        self.before_raw = NEVER_RAW
        self.attendance: Attendance | None = None

    def follow(self, attendance: Attendance, warn: float) -> None:
        """Log messages that are later than so many seconds."""
        self.attendance, self.warn = attendance, warn

    def heard(self, now: datetime) -> None:
        """The database's time at the last exchange."""
        if self.warn < float("inf"):
            self.before_raw = micros(now) - MOVED_RAW - int(self.warn * 1_000_000)

    def log_late(self, leased: Leased) -> None:
        """Log a message that begins late. Only its first start: later ones were put off by its handler or a failure."""
        message = leased.message
        if leased.attempt > 1 or leased.epoch > message.refunds + 1:
            return
        due, now = message.due_at or message.created_at, self._time.now()
        down = None if self.attendance is None else self.attendance.down
        minutes, hours = lateness((now - due).total_seconds())
        log.warning(
            "message.late",
            "Message %(message_id)s of type %(type)s in %(queue)s begins %(lateness_minutes)d minutes late: %(reason)s",
            **named(leased), subject=message.subject, due_at=due, started_at=now, lateness_minutes=minutes,
            lateness_hours=hours, reason=why_late(due, down),
        )  # fmt: skip


def named(leased: Leased) -> dict[str, Any]:
    """The fields of a log record about a message. Never its body, headers or dedupe key."""
    message = leased.message
    return {
        "message_id": message.id,
        "type": message.type,
        "queue": message.queue,
        "stream": message.stream,
        "attempt": leased.attempt,
    }
