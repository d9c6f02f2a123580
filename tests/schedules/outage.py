"""What must have been fired after an outage, computed without the code under test: days counted one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from uuid import UUID, uuid5

GRACE = 60.0
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Missed:
    """About so many occurrences that nobody fired, because nobody was there for so long.

    In a short outage each schedule misses one. In a long one they are yearly schedules, or daily ones of which each
    misses many. Many of them fall on one minute, the last at the very end.
    """

    due: int
    down: timedelta
    begin: datetime = datetime(2026, 3, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return self.begin + self.down

    @property
    def is_yearly(self) -> bool:
        return self.down > 30 * DAY and self.due < 1000

    @property
    def schedules(self) -> int:
        return self.due if self.down <= DAY or self.is_yearly else self.due // self.down.days

    def names(self) -> list[str]:
        return [f"n/{n:06}" for n in range(self.schedules)]

    def last(self, n: int) -> datetime:
        """The last moment of the n-th schedule in the outage."""
        if self.is_yearly:
            return self.end - timedelta(days=n % 360, seconds=n * 37 % 86_400)
        return self.end - timedelta(seconds=n * 37 % int(min(self.down, DAY).total_seconds()) // 60 * 60)

    def time_of(self, n: int) -> str:
        return f"{self.last(n):%H:%M:%S}"

    @cache  # noqa: B019
    def moments(self, n: int) -> list[datetime]:
        """Every moment of the n-th schedule in the outage, whatever becomes of it."""
        last = self.last(n)
        day, found = self.begin.replace(hour=0, minute=0, second=0), []
        while day <= self.end:
            if not self.is_yearly or (day.month, day.day) == (last.month, last.day):
                moment = day.replace(hour=last.hour, minute=last.minute, second=last.second)
                if self.begin < moment <= self.end:
                    found.append(moment)
            day += DAY
        return found


@dataclass(frozen=True)
class Outage:
    """What was missed, and what the schedules say is to be done about it."""

    missed: Missed
    misfire: str
    max_late: float | None

    def __str__(self) -> str:
        return f"{self.missed.down}-{self.missed.due}-{self.misfire}-{self.max_late}"

    def expected(self, n: int) -> list[datetime]:
        """What of the n-th schedule is fired."""
        found, end = self.missed.moments(n), self.missed.end
        if self.max_late is not None:
            found = [each for each in found if (end - each).total_seconds() <= self.max_late]
        match self.misfire:
            case "latest":
                return found[-1:]
            case "skip":
                return [each for each in found if (end - each).total_seconds() <= GRACE]
        return found

    @cached_property
    def fired(self) -> list[tuple[datetime, str]]:
        """The moments that must have been fired and the schedules they are of, the oldest first."""
        return sorted(
            (moment, name) for n, name in enumerate(self.missed.names()) for moment in self.expected(n)
        )

    @property
    def left_out(self) -> int:
        return sum(len(self.missed.moments(n)) for n in range(self.missed.schedules)) - len(self.fired)

    def ids(self, incarnations: dict[str, UUID]) -> list[UUID]:
        """The ids that must have been fired, the oldest first."""
        return [uuid5(incarnations[name], moment.date().isoformat()) for moment, name in self.fired]
