"""When an outage begins and when it is over, and how late a message is, in the words of the log.

    none  ── nobody worked for a minute (setting) while something was due ─────►  absent: since the last working moment
    none  ── more messages are late than `alert_late` allows ──────────────────►  late: since the oldest became late
    open  ── nothing is left that was due when somebody was back, few are late ─►  calm
    calm  ── for long enough, or the worker ends because nothing is due ───────►  over, with its summary
    calm  ── late again ───────────────────────────────────────────────────────►  open: the same outage

Time (`now`) is the database's and an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor, isinf

from ..model.outage import Began, Due, Ended, Outage, Verdict, WentOn
from .alert import RELEASE


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check saw: queues with something due, how many messages are late, and whether any worker runs."""

    due: Sequence[Due]
    late: int
    late_since: datetime | None  # since when the oldest late one is due
    is_attended: bool


def absent(due: Sequence[Due], after: float, now: datetime, *, is_back: bool) -> Began | None:
    """An outage in which nobody worked for `after` seconds or longer while something was due.

    A queue that never had a worker is not yet in use, so none was missing.
    """
    found = [(max(each.since, each.worked_at), each) for each in due if each.worked_at is not None]
    long = [(at, each) for at, each in found if (now - at).total_seconds() >= after]
    if not long:
        return None
    down = min(each.worked_at for _, each in long if each.worked_at is not None)
    return Began(
        "absent",
        min(at for at, _ in long),
        down,
        now if is_back else None,
        min(each.since for _, each in long),
    )


def judge(
    open: Outage | None, seen: Seen, *, allowed: float, late: float, after: float, calm: float, now: datetime
) -> Verdict | None:
    """The new state of the outage after a check. `calm` 0: it need not stay calm, because the checking worker ends."""
    if open is None:
        if not seen.is_attended:
            return absent(seen.due, after, now, is_back=False)
        if seen.late_since is None or seen.late < more_than(allowed):
            return None
        began = seen.late_since + timedelta(seconds=late)
        return Began("late", min(began, now), None, None, seen.late_since)
    back = open.back_at
    if open.cause == "absent" and back is None and seen.is_attended:
        back = now
    if not _is_calm(open, back, seen, allowed):
        changed = open.calm_since is not None or back != open.back_at
        return WentOn(open, back, None) if changed else None
    if open.calm_since is None and calm > 0:
        return WentOn(open, back, now)
    since = open.calm_since or now
    return Ended(open, now) if (now - since).total_seconds() >= calm else None


def _is_calm(open: Outage, back: datetime | None, seen: Seen, allowed: float) -> bool:
    if seen.late >= RELEASE * more_than(allowed):
        return False
    if open.cause == "late":
        return seen.is_attended
    return back is not None and not any(each.since <= back for each in seen.due)


def more_than(allowed: float) -> float:
    """The smallest count that is more than what is allowed.

    >>> more_than(10)
    11.0
    """
    return allowed if isinf(allowed) else float(floor(allowed) + 1)


def lateness(seconds: float) -> tuple[int, float]:
    """How late a message is, in the fields of a log: whole minutes, and hours with one decimal.

    >>> lateness(68_405)
    (1140, 19.0)
    """
    minutes = floor(max(0.0, seconds) / 60)
    return minutes, round(minutes / 60, 1)


def why_late(due: datetime, down: tuple[datetime, datetime] | None) -> str:
    """Why a message began late, if its worker knows. `down`: since when and until when no worker ran."""
    if down is not None and due <= down[1]:
        return "recovery from downtime"
    return "it waited behind others or was held back"
