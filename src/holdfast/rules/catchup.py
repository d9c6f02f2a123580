"""Slow start: after an outage a backlog is started at a low rate that rises.

When a dependency is back after an outage, a backlog waits for it. It gets `start` messages a second at first, twice as
many every few seconds, until there is no limit:

    rate(t) = start * 2 ** (t / doubles)    for 10 * doubles seconds: then it is a thousand times the start

So at most twice `start` begin in the first second, however long the backlog is, and a dependency that fails again under
the load does so early, at a low rate. All workers share the tokens (`rules.rate`).
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
    """This many a second at first, twice as many every `doubles` seconds."""

    per_second: float
    doubles: float = 3.0

    def __post_init__(self) -> None:
        if isinstance(self.doubles, bool) or not isinstance(self.doubles, int | float):
            raise InvalidSettings(f"catch_up_doubles={self.doubles!r} must be a number of seconds.")
        if not 0.01 <= self.doubles <= 3600:
            raise InvalidSettings(f"catch_up_doubles={self.doubles!r} must be from 0.01 to 3600 seconds.")

    @property
    def lasts(self) -> float:
        """Seconds after which there is no limit."""
        return DOUBLINGS * self.doubles

    def rate(self, passed: float) -> Rate | None:
        """The rate at this many seconds after the end of the outage; None: no limit."""
        if passed >= self.lasts:
            return None
        per_second = min(PER_SECOND_MAX, self.per_second * 2 ** (max(0.0, passed) / self.doubles))
        return Rate(per_second, max(1, ceil(per_second)))


def catch_up(text: object, doubles: float = 3.0) -> CatchUp | None:
    """`10/s` and the seconds in which it doubles; None: no limit.

    >>> catch_up("10/s").rate(6.0)
    Rate(per_second=40.0, burst=40)
    """
    return None if text is None else CatchUp(rate(text).per_second, doubles)
