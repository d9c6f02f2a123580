"""A breaker as a value: when calls to a dependency go through, and when they are refused.

    closed     ── more than half of the last 20 calls failed, at least 10 seen ──►  open
    closed     ── the other side asked for time (Retry-After) ───────────────────►  open, until then
    open       ── 30 s after the last failure ───────────────────────────────────►  half_open, counters fresh
    half_open  ── 3 trials succeeded ────────────────────────────────────────────►  closed, counters fresh
    half_open  ── a trial failed ────────────────────────────────────────────────►  open

The failure rate is computed when a call fails, or a batch in which some calls failed, and over the last calls only.
Calls from long ago neither open a breaker nor keep it open. An **era** is the time between two changes of state. A call
belongs to the era in which it was let through, and its result counts in that era only: a late result neither fails a
trial nor counts as one. A trial that never reports back (its process died) is replaced after a cooldown, so no breaker
stays half open for ever.

Each call is stored as a letter: `.` succeeded, `x` failed, `-` says nothing about the dependency.
Time (`now`) is the database's and an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict, Unpack, assert_never

from ..errors import InvalidSettings
from .catchup import catch_up

GOOD, BAD, VOID = ".", "x", "-"
WAIT_MAX = 3600.0  # of a Retry-After
TRIAL_WAIT = 1.0  # when all trials are running: one of them may end soon
TIMES_MAX = 366 * 86_400.0


class State(StrEnum):
    """What a breaker does with calls: lets them through, refuses them, or lets a few through as trials."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerOptions(TypedDict, total=False):
    """The fields of a `Policy` as keywords, each of which may be left out."""

    window: int
    calls_min: int
    opens_above: float
    cooldown: float
    trials: int
    closes_above: float
    catch_up: str | None
    catch_up_doubles: float


@dataclass(frozen=True, slots=True)
class Policy:
    """When a breaker opens and closes. Rates are shares of 1, times are in seconds."""

    window: int = 20
    calls_min: int = 10  # fewer calls decide nothing
    opens_above: float = 0.5
    cooldown: float = 30.0
    trials: int = 3
    closes_above: float = 0.8
    catch_up: str | None = "10/s"  # the rate at first after it has closed; None: everything at once
    catch_up_doubles: float = 3.0

    def __post_init__(self) -> None:
        for name, least, most in (("window", 1, 1000), ("calls_min", 1, self.window), ("trials", 1, 100)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise InvalidSettings(
                    f"A breaker's {name}={value!r} must be a whole number from {least} to {most}."
                )
        # At 1 it could never be exceeded: such a breaker would never open, or never close.
        for name in ("opens_above", "closes_above"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise InvalidSettings(f"A breaker's {name}={value!r} must be a share from 0 to below 1.")
        if isinstance(self.cooldown, bool) or not isinstance(self.cooldown, int | float):
            raise InvalidSettings(f"A breaker's cooldown={self.cooldown!r} must be a number of seconds.")
        if not 0 < self.cooldown <= TIMES_MAX:
            raise InvalidSettings(f"A breaker's cooldown={self.cooldown!r} must be positive, a year at most.")
        catch_up(self.catch_up, self.catch_up_doubles)

    def but(self, **changes: Unpack[BreakerOptions]) -> Policy:
        """A copy with something changed; an unknown name is refused."""
        known = [each.name for each in fields(self)]
        for name in changes:
            if name not in known:
                raise InvalidSettings(f"A breaker has no {name!r}; it has: {', '.join(known)}, counts.")
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Switch:
    """The state of one breaker. Every method that changes something returns a new value."""

    policy: Policy = Policy()
    state: State = State.CLOSED
    era: int = 0
    calls: str = ""  # closed: the last ones, oldest first; open: those that opened it
    trials_left: int = 0
    successes: int = 0  # of trials
    opened_at: datetime | None = None
    closed_at: datetime | None = None  # after having been open
    until: datetime | None = None  # open: end of the cooldown; half open: when running trials are given up
    forced: bool = False  # by an operator: no call changes it
    why: str | None = None

    # -- asking

    def room(self, now: datetime) -> int | None:
        """How many calls may begin now; None: any number."""
        match self.state:
            case State.CLOSED:
                return None
            case State.OPEN:
                return self.policy.trials if self._is_over(now) else 0
            case State.HALF_OPEN:
                return self.trials_left or int(self._is_over(now))
            case _:
                assert_never(self.state)

    def allows(self, now: datetime) -> bool:
        """Whether a call may begin now; in an open or half-open breaker it must `take` a trial first."""
        return self.room(now) != 0

    def retry_in(self, now: datetime) -> float:
        """Seconds until it is worth asking again: 0 if a call may begin now."""
        if self.allows(now):
            return 0.0
        if self.until is None:  # forced open: until an operator closes it
            return self.policy.cooldown
        left = (self.until - now).total_seconds()
        return left if self.state is State.OPEN else min(left, TRIAL_WAIT)

    @property
    def failures(self) -> int:
        return self.calls.count(BAD)

    def _is_over(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until

    # -- calls

    def take(self, now: datetime) -> Switch | None:
        """A trial begins, unless it must not: None. The first one after the cooldown makes the breaker half open."""
        room = self.room(now)
        if room is None:
            return self
        if room == 0:
            return None
        switch = self
        if self.state is State.OPEN:
            switch = self._become(State.HALF_OPEN, trials_left=room, opened_at=self.opened_at, why=self.why)
        return replace(switch, trials_left=max(0, switch.trials_left - 1), until=self._later(now))

    def after(self, calls: str, now: datetime, era: int | None = None, why: str | None = None) -> Switch:
        """Record the results of calls that were let through in `era` (default: this one), oldest first."""
        era = self.era if era is None else era
        if self.state is State.CLOSED:
            return self._after_calls(calls.replace(VOID, ""), now, why) if era == self.era else self
        switch = self
        for call in calls:
            switch = switch._after_one(call, now, era, why)
        return switch

    def asked_to_wait(
        self, seconds: float, now: datetime, era: int | None = None, why: str | None = None
    ) -> Switch:
        """The other side asked for a pause (Retry-After). At most an hour is accepted."""
        if self.forced or era not in (None, self.era, self.era - 1):
            return self
        until = now + timedelta(seconds=min(max(seconds, 0.0), WAIT_MAX))
        if self.state is State.OPEN:
            return self._extended(until)
        if era == self.era - 1:
            return self
        if self.state is State.HALF_OPEN:
            until = max(until, self._later(now))
        return self._open(now, until, why)

    def _after_calls(self, calls: str, now: datetime, why: str | None) -> Switch:
        if not calls:
            return self
        switch = replace(self, calls=(self.calls + calls)[-self.policy.window :])
        seen, failed = len(switch.calls), switch.failures
        is_judged = BAD in calls and not self.forced and seen >= self.policy.calls_min
        if is_judged and failed / seen > self.policy.opens_above:
            counted = f"{failed} of the last {seen} calls failed"
            return switch._open(now, self._later(now), f"{counted}: {why}" if why else counted)
        return switch

    def _after_one(self, call: str, now: datetime, era: int, why: str | None) -> Switch:
        if self.state is State.OPEN:
            is_late_failure = call == BAD and era in (self.era, self.era - 1) and not self.forced
            return self._extended(self._later(now)) if is_late_failure else self
        if self.state is State.HALF_OPEN and era == self.era:
            return self._after_trial(call, now, why)
        return self

    def _after_trial(self, call: str, now: datetime, why: str | None) -> Switch:
        if call == BAD:
            return self._open(now, self._later(now), f"a trial failed: {why}" if why else "a trial failed")
        if call == VOID:
            return replace(self, trials_left=min(self.trials_left + 1, self.policy.trials))
        switch = replace(self, successes=self.successes + 1)
        if switch.successes / self.policy.trials > self.policy.closes_above:
            return switch._become(State.CLOSED, closed_at=now)
        return switch

    # -- relays

    def mended(self, now: datetime, opened_for: str) -> Switch | None:
        """Close it if the reason for which it was opened is over.

        None: it is closed, or was opened for another reason.
        """
        if self.state is State.CLOSED or self.forced or not (self.why or "").startswith(opened_for):
            return None
        return self._become(State.CLOSED, closed_at=now)

    # -- an operator's commands

    def trip(self, now: datetime, seconds: float | None = None, why: str | None = None) -> Switch:
        """Open it for this long, then trials as usual; without a time until it is closed by a command."""
        if seconds is None:
            return self._become(State.OPEN, forced=True, opened_at=now, why=why)
        return self._open(now, now + timedelta(seconds=min(max(seconds, 0.0), TIMES_MAX)), why)

    def force_closed(self, why: str | None = None) -> Switch:
        """Let every call through, even if calls fail."""
        return self._become(State.CLOSED, forced=True, why=why)

    def reset(self) -> Switch:
        """Close it, reset the counters, and let calls change it again."""
        return self._become(State.CLOSED)

    # -- changes of state

    def _open(self, now: datetime, until: datetime, why: str | None) -> Switch:
        return self._become(State.OPEN, calls=self.calls, opened_at=now, until=until, why=why)

    def _become(self, state: State, **values: Any) -> Switch:
        return Switch(policy=self.policy, state=state, era=self.era + 1, **values)

    def _extended(self, until: datetime) -> Switch:
        return self if self.until is None or until <= self.until else replace(self, until=until)

    def _later(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.policy.cooldown)
