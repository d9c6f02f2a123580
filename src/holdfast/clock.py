"""The only clocks and the only dice: nothing else in the package reads time or chance.

Instants that are stored come from the database; `monotonic` measures how long something took
inside one process; `roll` is the chance that rules receive as an argument.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where a worker gets local time and chance from."""

    def monotonic(self) -> float: ...
    def now(self) -> datetime | None: ...
    def roll(self) -> float: ...


class SystemClock:
    """The machine's clock. `now()` is None: stored instants are the database's own."""

    monotonic = staticmethod(time.monotonic)  # asked for several times a message
    roll = staticmethod(random.random)

    def now(self) -> datetime | None:
        return None


@dataclass
class MovableClock:
    """A clock for tests: time stands until it is moved, and the dice are seeded."""

    instant: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def monotonic(self) -> float:
        return (self.instant - EPOCH).total_seconds()

    def now(self) -> datetime | None:
        return self.instant

    def roll(self) -> float:
        return self.dice.random()

    def advance(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        microseconds: float = 0,
    ) -> None:
        """Move time forward: `clock.advance(minutes=5)`."""
        self.instant += timedelta(
            days=days, seconds=seconds, microseconds=microseconds, milliseconds=milliseconds,
            minutes=minutes, hours=hours, weeks=weeks,
        )  # fmt: skip


def wall_clock() -> datetime:
    """This machine's idea of the time, for showing to people; never stored as an instant that decides something."""
    return datetime.now(UTC)


def micros(instant: datetime) -> int:
    """An aware datetime as integer microseconds since 1970, UTC."""
    delta = instant - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(value: int) -> datetime:
    return EPOCH + timedelta(0, 0, value)
