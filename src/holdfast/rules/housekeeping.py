"""How long one stretch of cleaning lasts, and when the next one begins.

However much there is to clean, it takes a tenth of the time of one process. Each stretch is short, so a worker that is
asked to stop need not wait for it. While there is more to clean, the next stretch begins as soon as this share allows.
"""

from __future__ import annotations

from typing import NamedTuple

SHARE = 0.1  # of the time
STRETCH_SECONDS = 0.5
PAUSE_MIN = 0.5


class Rest(NamedTuple):
    """How many seconds to rest at least, and whether there is more to do after that."""

    seconds: float
    more: bool


def goes_on(spent: float, allowed: float) -> bool:
    """Whether another batch may follow after cleaning for this many seconds."""
    return spent < allowed


def rest(spent: float, more: bool) -> Rest:
    """The rest after cleaning for this long. A long search that found nothing counts as well."""
    seconds = max(0.0, spent) * (1 / SHARE - 1)
    return Rest(max(PAUSE_MIN, seconds) if more else seconds, more)
