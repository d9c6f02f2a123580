"""When an ended worker inside an application is restarted: later each time (backoff), soon if it ran well before."""

from __future__ import annotations

FIRST, LONGEST = 0.5, 60.0  # seconds
WELL = 60.0  # a worker that ran for so many seconds ran well


def pause_before_restart(before: float, ran: float) -> float:
    """Seconds until the restart of a worker that ended after it `ran` this long; `before` is the last pause, 0 if none.

    >>> pause_before_restart(0.0, 3.0), pause_before_restart(0.5, 3.0), pause_before_restart(32.0, 3600.0)
    (0.5, 1.0, 0.5)
    """
    if not before or ran >= WELL:
        return FIRST
    return min(before * 2, LONGEST)
