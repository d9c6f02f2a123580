"""How long cleaning goes on at a time, and when it comes again.

However much there is to clean, it takes a tenth of the time of one process, in stretches so short that a worker that is
told to stop need not wait for them. While there is more it comes again as soon as its share allows.
"""

from __future__ import annotations

from typing import NamedTuple

SHARE = 0.1  # of the time
STRETCH_SECONDS = 0.5
PAUSE_MIN = 0.5


class Rest(NamedTuple):
    """How many seconds to rest at least, and whether there is more to do then."""

    seconds: float
    more: bool


def goes_on(spent: float, allowed: float) -> bool:
    """Whether another batch may follow after so many seconds."""
    return spent < allowed


def rest(spent: float, more: bool) -> Rest:
    """After cleaning for so long. A long look that found nothing is paid for as well."""
    seconds = max(0.0, spent) * (1 / SHARE - 1)
    return Rest(max(PAUSE_MIN, seconds) if more else seconds, more)
