"""Bounded catch-up: after an outage a backlog begins slowly, and faster and faster.

A dependency that is back after an outage finds a backlog at its door. It gets so many a second at first, twice as many
every few seconds, until there is no limit any more:

    rate(t) = start * 2 ** (t / doubles)    for 10 * doubles seconds: then it is a thousand times the start

So the first second begins at most two starts' worth, whatever has piled up, and a dependency that fails again under
the load does so early and gently. All workers share the tokens (`rules.rate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ..errors import InvalidSettings
from ..model.limits import Rate
from .rate import rate

DOUBLINGS = 10
PER_SECOND_MAX = 1_000_000.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """So many a second at first, twice as many every `doubles` seconds."""

    per_second: float
    doubles: float = 3.0

    def __post_init__(self) -> None:
        if isinstance(self.doubles, bool) or not isinstance(self.doubles, int | float):
            raise InvalidSettings(f"catch_up_doubles={self.doubles!r} must be a number of seconds.")
        if not 0.01 <= self.doubles <= 3600:
            raise InvalidSettings(f"catch_up_doubles={self.doubles!r} must be from 0.01 to 3600 seconds.")

    @property
    def lasts(self) -> float:
        """Seconds after which nothing is bounded any more."""
        return DOUBLINGS * self.doubles

    def rate(self, passed: float) -> Rate | None:
        """What may begin so many seconds after the outage has ended; None: anything."""
        if passed >= self.lasts:
            return None
        per_second = min(PER_SECOND_MAX, self.per_second * 2 ** (max(0.0, passed) / self.doubles))
        return Rate(per_second, max(1, ceil(per_second)))


def catch_up(text: object, doubles: float = 3.0) -> CatchUp | None:
    """`10/s` and how soon it doubles; None: no bound.

    >>> catch_up("10/s").rate(6.0)
    Rate(per_second=40.0, burst=40)
    """
    return None if text is None else CatchUp(rate(text).per_second, doubles)
