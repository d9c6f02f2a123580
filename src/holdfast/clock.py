"""The only clocks and the only source of chance: nothing else in the package reads time or random numbers.

Instants that are stored come from the database; `monotonic` measures how long something took
inside one process; `roll` is the chance that rules receive as an argument.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypedDict, Unpack

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Monotonic(Protocol):
    """What measures how long something takes."""

    def monotonic(self) -> float: ...


class Clock(Monotonic, Protocol):
    """Where a worker gets local time and chance from."""

    def now(self) -> datetime | None: ...
    def roll(self) -> float: ...


class SystemClock:
    """The machine's clock. `now()` is None: stored instants are the database's own."""

    monotonic = staticmethod(time.monotonic)  # called several times for each message
    roll = staticmethod(random.random)

    def now(self) -> datetime | None:
        return None


class Duration(TypedDict, total=False):
    """The keywords of a timedelta."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float
    microseconds: float


@dataclass
class MovableClock:
    """A clock for tests: time stands still until it is moved, and chance is seeded."""

    instant: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def monotonic(self) -> float:
        return (self.instant - EPOCH).total_seconds()

    def now(self) -> datetime | None:
        return self.instant

    def roll(self) -> float:
        return self.dice.random()

    def advance(self, **by: Unpack[Duration]) -> None:
        """Move time forward: `clock.advance(minutes=5)`."""
        self.instant += timedelta(**by)


class DatabaseTime:
    """An estimate of the database's time: its last answer, and the time that has passed here since."""

    __slots__ = ("_clock", "_heard")

    def __init__(self, clock: Monotonic) -> None:
        self._clock = clock
        self._heard: tuple[datetime, float] | None = None  # its answer, and when that was by our own clock

    @property
    def is_known(self) -> bool:
        return self._heard is not None

    def hear(self, instant: datetime, at: float) -> None:
        """The database's time was this, at this moment of our own clock."""
        self._heard = (instant, at)

    def at(self, moment: float) -> datetime:
        """The database's time at a moment of our own clock. An answer must have come before."""
        assert self._heard is not None
        instant, heard_at = self._heard
        return instant + timedelta(seconds=moment - heard_at)

    def now(self) -> datetime:
        return self.at(self._clock.monotonic())

    def since(self, instant: datetime) -> float:
        """Seconds that have passed since an instant of the database."""
        assert self._heard is not None
        heard, heard_at = self._heard
        return (heard - instant) / SECOND + self._clock.monotonic() - heard_at


def wall_clock() -> datetime:
    """This machine's time, to show to people. It is never stored where a decision depends on it."""
    return datetime.now(UTC)


def wall_micros() -> int:
    """The same as integer microseconds since 1970."""
    return time.time_ns() // 1000


def micros(instant: datetime) -> int:
    """An aware datetime as integer microseconds since 1970, UTC."""
    delta = instant - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(value: int) -> datetime:
    """The reverse. A time outside Python's range becomes the last or the first that Python has."""
    try:
        return EPOCH + timedelta(0, 0, value)
    except OverflowError:
        return (datetime.max if value > 0 else datetime.min).replace(tzinfo=UTC)
