"""What must have been fired after an outage, computed without the code under test: days counted one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

GRACE = 60.0


@dataclass(frozen=True)
class Outage:
    """So many daily schedules, at different times of the day, and nobody there for so long."""

    schedules: int
    down: timedelta
    misfire: str
    max_late: float | None
    begin: datetime = datetime(2026, 3, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return self.begin + self.down

    def time_of(self, n: int) -> str:
        """The schedules are spread over the last minutes of the outage's time of day, and over the day."""
        moment = self.end - timedelta(
            seconds=(n * 37) % int(min(self.down, timedelta(days=1)).total_seconds())
        )
        return f"{moment:%H:%M:%S}"

    def moments(self, n: int) -> list[datetime]:
        """Every moment of the n-th schedule in the outage, whatever becomes of it."""
        hour, minute, second = map(int, self.time_of(n).split(":"))
        day, found = self.begin.replace(hour=0, minute=0, second=0), []
        while day <= self.end:
            moment = day.replace(hour=hour, minute=minute, second=second)
            if self.begin < moment <= self.end:
                found.append(moment)
            day += timedelta(days=1)
        return found

    def expected(self, n: int) -> list[datetime]:
        """What of it is fired."""
        found = self.moments(n)
        if self.max_late is not None:
            found = [each for each in found if (self.end - each).total_seconds() <= self.max_late]
        match self.misfire:
            case "latest":
                return found[-1:]
            case "skip":
                return [each for each in found if (self.end - each).total_seconds() <= GRACE]
        return found

    def ids(self, incarnations: dict[str, UUID]) -> list[UUID]:
        """The ids that must have been fired, the oldest first."""
        due = sorted(
            (moment, f"n/{n:06}", moment.date().isoformat())
            for n in range(self.schedules)
            for moment in self.expected(n)
        )
        return [uuid5(incarnations[name], key) for _, name, key in due]
