"""How many may begin in a second: a token bucket that all workers share, and the few tokens that a worker holds.

A bucket fills at its rate, up to its burst, whatever happened before: after an outage a backlog is worked off at the
rate, and not all at once. A worker takes tokens for a moment of work at a time, so there is no write per message.
Tokens that it has not used within a second expire, except one, so an idle queue costs no writes.

So in any T seconds all workers together begin at most  burst + rate * (T + 1) + one for each worker.
Time (`now`) is an argument: the database's for the bucket, monotonic for the hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from math import ceil, floor, inf

from ..errors import InvalidSettings
from ..model.limits import Rate

MOMENT = 0.25  # seconds of work to take tokens for
KEPT = 1.0  # seconds for which tokens in hand are valid
PAUSE_MIN, PAUSE_MAX = 0.02, 1.0  # between two looks into an empty bucket
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|min|h|d)\s*")


def rate(text: object, burst: int | None = None) -> Rate:
    """`100/s`, `30/min`, `500/h` or `10/d`. Without `burst` one second's worth may begin at once, and at least one.

    >>> rate("30/min")
    Rate(per_second=0.5, burst=1)
    """
    found = RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidSettings(
            f"rate={text!r} is not understood: write 100/s, 30/min, 500/h or 10/d, a number and a unit."
        )
    per_second = float(found[1]) / UNITS[found[2]]
    return Rate(per_second, max(1, ceil(per_second)) if burst is None else burst)


def batch(rate: Rate) -> int:
    """How many tokens a worker takes at a time."""
    return max(1, min(rate.burst, ceil(rate.per_second * MOMENT)))


@dataclass(frozen=True, slots=True)
class Bucket:
    """The tokens in the bucket at one point in time. `rate_take.sql` does the same arithmetic."""

    tokens: float
    at: datetime

    def take(self, rate: Rate, wanted: int, now: datetime) -> tuple[int, Bucket]:
        """Take up to this many whole tokens; returns how many were taken."""
        passed = max(0.0, (now - self.at).total_seconds())
        there = min(float(rate.burst), self.tokens + passed * rate.per_second)
        granted = floor(min(float(wanted), there))
        if granted < 1:
            return 0, self
        return granted, Bucket(there - granted, max(now, self.at))


@dataclass(slots=True)
class Hand:
    """The tokens that one worker has taken and not used. It takes as many at a time as it uses in a moment."""

    rate: Rate
    tokens: int = 0
    size: int = 1  # of the next batch
    taken_at: float = -inf
    look_at: float = -inf  # the bucket is not asked before this
    pause: float = PAUSE_MIN

    def has(self, now: float) -> int:
        """How many tokens are valid. All but one expire if they are not used soon."""
        if self.tokens > 1 and now - self.taken_at >= KEPT:
            self.tokens = 1
        return self.tokens

    def use(self, now: float) -> bool:
        """One message begins, if there is a token for it."""
        if not self.has(now):
            return False
        self.tokens -= 1
        return True

    def need(self, now: float) -> int:
        """How many tokens to take now: none while one is in hand, and none while the bucket is known to be empty."""
        return 0 if self.has(now) or now < self.look_at else self.size

    def take(self, granted: int, now: float) -> None:
        """The bucket gave this many. If it gave none, ask again when it may have one."""
        if not granted:
            self.look_at = now + max(self.pause, min(PAUSE_MAX, 0.5 / self.rate.per_second))
            self.pause = min(self.pause * 2, PAUSE_MAX)
            return
        lasted = now - self.taken_at
        if lasted < MOMENT:
            self.size = min(self.size * 2, batch(self.rate))
        elif lasted > 2 * MOMENT:
            self.size = max(1, self.size // 2)
        self.tokens += granted
        self.taken_at, self.pause = now, PAUSE_MIN
