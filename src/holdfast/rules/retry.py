"""How often a handler may start, and how long a message waits after a failure.

    delay = min(base * factor ** failures, cap) * (1 - jitter .. 1 + jitter)

`failures` counts the failure just reported, so the first delay of `patient` is 30 s * 2 = 1 min. Jitter is applied
after the cap. Applied before it, half of all capped retries would be due at the cap itself and come back together (seed
004). So no delay exceeds cap * (1 + jitter), and jitter never makes it zero. A Retry-After replaces the formula,
bounded at an hour.

| profile | delay | cap | starts |
|---|---|---|---|
| patient | 30 s * 2^n | 1 h | 10 |
| brisk | 2^n s | 5 min | 5 |
| api | 2^n s, +-20 % | 5 min | 4 |
| steady | 60 s | - | 3 |
| immediate | none | - | 5 |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from ..errors import InvalidSettings
from ..model.failure import PERMANENT
from ..model.message import Reason
from ..settings import RetryProfile

RETRY_AFTER_MAX = 3600.0
CAP_MAX = 366 * 86_400.0
BASE_MIN = 0.001


class RetryOptions(TypedDict, total=False):
    """The fields of a `RetryPolicy` as keywords, each of which may be left out."""

    attempts_max: int
    base: float
    factor: float
    cap: float
    jitter: float
    per_reason: Mapping[Reason, RetryPolicy]
    never: frozenset[Reason]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to retry, and when to stop. Times are in seconds; `factor=1` is a constant delay.

    `per_reason` gives some reasons a policy of their own; a reason named there is retried even if it is in `never`, the
    reasons for which a message dies at once.

    >>> RetryPolicy(attempts_max=3, base=1, cap=60).delay(2, roll=0.5)
    4.0
    """

    attempts_max: int = 10
    base: float = 30.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.0
    per_reason: Mapping[Reason, RetryPolicy] = field(default_factory=dict, hash=False)
    never: frozenset[Reason] = PERMANENT

    def __post_init__(self) -> None:
        if type(self.attempts_max) is not int or self.attempts_max < 1:
            raise InvalidSettings(f"attempts_max={self.attempts_max!r} must be a whole number of at least 1.")
        _check_number("cap", self.cap, 0.0, CAP_MAX)
        _check_number("factor", self.factor, 1.0, 1000.0)
        _check_number("base", self.base, 0.0, self.cap)
        if 0 < self.base < BASE_MIN:
            raise InvalidSettings(f"base={self.base!r} must be 0 or at least {BASE_MIN} s.")
        _check_number("jitter", self.jitter, 0.0, 0.99)
        own: dict[Reason, Any] = {Reason(reason): override for reason, override in self.per_reason.items()}
        for reason, override in own.items():
            if not isinstance(override, RetryPolicy) or override.per_reason:
                raise InvalidSettings(f"per_reason[{reason.name}] must be a RetryPolicy without per_reason.")
        object.__setattr__(self, "per_reason", MappingProxyType(own))
        object.__setattr__(self, "never", frozenset(map(Reason, self.never)))

    @property
    def starts_max(self) -> int:
        """How often a handler may start, whatever the reasons were."""
        return max([self.attempts_max, *(override.attempts_max for override in self.per_reason.values())])

    def for_reason(self, reason: Reason) -> RetryPolicy:
        """The policy after a failure for `reason`."""
        return self.per_reason.get(reason, self)

    def hopeless(self, reason: Reason) -> bool:
        """Whether a failure for `reason` is the end, however many attempts are left."""
        return reason in self.never and reason not in self.per_reason

    def delay(self, failures: int, roll: float, retry_after: float | None = None) -> float:
        """Seconds until the next try. `failures` includes the one just reported; `roll` is chance in 0..1.

        A `retry_after` that asks for nothing (zero, a time in the past) leaves the policy's own delay in place.
        """
        if retry_after is not None and retry_after > 0:
            return min(retry_after, RETRY_AFTER_MAX)
        return self._capped(failures) * (1.0 + self.jitter * (2.0 * roll - 1.0))

    def but(self, **changes: Unpack[RetryOptions]) -> RetryPolicy:
        """A copy with something changed: `policy("api").but(attempts_max=8)`."""
        known = [known.name for known in fields(self)]
        for name in changes:
            if name not in known:
                raise InvalidSettings(f"A retry policy has no {name!r}; it has: {', '.join(known)}.")
        return replace(self, **changes)

    def _capped(self, failures: int) -> float:
        if failures < 1 or self.base == 0:
            return 0.0
        # The power is computed only below the cap: 2 ** 10_000 is not a float.
        if self.factor > 1 and failures >= math.log(self.cap / self.base) / math.log(self.factor):
            return float(self.cap)
        return float(min(self.base * self.factor ** (failures if self.factor > 1 else 0), self.cap))


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidSettings(f"{name}={value!r} must be a number from {low:g} to {high:g}.")


PROFILES: Mapping[RetryProfile, RetryPolicy] = MappingProxyType(
    {
        "patient": RetryPolicy(attempts_max=10, base=30.0, factor=2.0, cap=3600.0),
        "brisk": RetryPolicy(attempts_max=5, base=1.0, factor=2.0, cap=300.0),
        "api": RetryPolicy(attempts_max=4, base=1.0, factor=2.0, cap=300.0, jitter=0.2),
        "steady": RetryPolicy(attempts_max=3, base=60.0, factor=1.0, cap=60.0),
        "immediate": RetryPolicy(attempts_max=5, base=0.0, factor=1.0, cap=0.0),
    }
)


def policy(which: RetryProfile | RetryPolicy) -> RetryPolicy:
    """A profile by its name; a policy is returned as it is."""
    if isinstance(which, RetryPolicy):
        return which
    found = PROFILES.get(which)
    if found is None:
        raise InvalidSettings(f"There is no retry profile {which!r}; there are: {', '.join(PROFILES)}.")
    return found
