"""When a worker inside an application that has ended is started again: later each time, soon after it ran well."""

from __future__ import annotations

FIRST, LONGEST = 0.5, 60.0  # seconds
WELL = 60.0  # seconds after which a worker counts as one that ran


def pause_before_restart(before: float, ran: float) -> float:
    """Seconds to wait for a worker that ended after it `ran` so long; `before` is the pause before that, 0 if none.

    >>> pause_before_restart(0.0, 3.0), pause_before_restart(0.5, 3.0), pause_before_restart(32.0, 3600.0)
    (0.5, 1.0, 0.5)
    """
    if not before or ran >= WELL:
        return FIRST
    return min(before * 2, LONGEST)
