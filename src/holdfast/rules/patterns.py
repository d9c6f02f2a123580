"""What can recur, as values: patterns, and a rule that puts one into a zone.

`Rule.text` is canonical: equal rules have equal texts, and `recurrence.parse(rule.text) == rule`. It is what a database
stores. A rule holds the name of its zone and no zone data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Literal

from . import cron as crontab
from .cron import WEEK, Cron
from .days import Days, LocalTimes
from .zones import EPOCH, EPOCH_DAY

Feb29 = Literal["feb28", "mar1", "skip"]
Short = Literal["last", "skip"]


class KeyKind(Enum):
    """What names an occurrence, so that it has the same name whoever computes it."""

    DATE = "date"  # the local date: daily to yearly rules
    LOCAL = "local"  # local date and time: cron with fixed times
    INSTANT = "instant"  # the moment in UTC, before jitter: elapsed rules


# --- What recurs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Every:
    """So many seconds apart, counted from a moment."""

    seconds: int
    anchor: datetime = EPOCH

    @property
    def text(self) -> str:
        return f"every {self.seconds}s" + (f" from {stamp(self.anchor)}" if self.anchor != EPOCH else "")


@dataclass(frozen=True, slots=True)
class Daily:
    at: time

    @property
    def text(self) -> str:
        return f"daily {clock(self.at)}"

    @property
    def days(self) -> Days:
        return Days()


@dataclass(frozen=True, slots=True)
class Weekly:
    """On given weekdays; 0 is Monday."""

    weekdays: tuple[int, ...]
    at: time

    @property
    def text(self) -> str:
        names = ",".join(WEEK[(each + 1) % 7] for each in self.weekdays)
        return f"weekly {names} {clock(self.at)}"

    @property
    def days(self) -> Days:
        return Days(week_days=sum(1 << each for each in self.weekdays))


@dataclass(frozen=True, slots=True)
class Monthly:
    """On a day of the month: `31`, `L`, `LW`, `15W`, `TUE#2`.

    In months without that day: on the last one, or not at all.
    """

    day: str
    at: time
    short: Short = "last"

    @property
    def text(self) -> str:
        skip = " skip" if self.short == "skip" and self.can_be_short else ""
        return f"monthly {self.day} {clock(self.at)}{skip}"

    @property
    def can_be_short(self) -> bool:
        return self.day in ("29", "30", "31")

    @property
    def days(self) -> Days:
        if "#" in self.day:
            return crontab.parse(f"0 0 * * {self.day}").days
        found = crontab.parse(f"0 0 {self.day} * *").days
        return Days(
            month_days=found.month_days,
            from_last=found.from_last,
            last_weekday=found.last_weekday,
            nearest=found.nearest,
            clipped=self.short == "last",
        )


@dataclass(frozen=True, slots=True)
class Yearly:
    month: int
    day: int
    at: time
    feb29: Feb29 = "feb28"

    @property
    def text(self) -> str:
        return f"yearly {self.month:02}-{self.day:02} {clock(self.at)}" + (
            f" {self.feb29}" if self.on_feb29 else ""
        )

    @property
    def on_feb29(self) -> bool:
        return (self.month, self.day) == (2, 29)

    @property
    def days(self) -> Days:
        if self.on_feb29 and self.feb29 != "skip":
            return Days(months=1 << 2 | (1 << 3 if self.feb29 == "mar1" else 0), feb29=self.feb29)
        return Days(months=1 << self.month, month_days=1 << self.day)


Pattern = Every | Cron | Daily | Weekly | Monthly | Yearly


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern in a zone, from `start` to `end` (both included), up to `jitter` seconds later, not on some dates."""

    pattern: Pattern
    zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    jitter: int = 0
    without: tuple[date, ...] = ()

    @property
    def is_elapsed(self) -> bool:
        """Whether it counts elapsed time instead of local time."""
        match self.pattern:
            case Every():
                return True
            case Cron(elapsed=elapsed):
                return elapsed
            case _:
                return False

    @property
    def key_kind(self) -> KeyKind:
        if self.is_elapsed:
            return KeyKind.INSTANT
        return KeyKind.LOCAL if isinstance(self.pattern, Cron) else KeyKind.DATE

    @property
    def text(self) -> str:
        """The canonical form, which is stored and parsed back."""
        kind = "cron " if isinstance(self.pattern, Cron) else ""
        where = "" if isinstance(self.pattern, Every) else f" in {self.zone}"
        options = [
            f"{kind}{self.pattern.text}{where}",
            f"start {stamp(self.start)}" if self.start else "",
            f"end {stamp(self.end)}" if self.end else "",
            f"jitter {self.jitter}s" if self.jitter else "",
            f"without {','.join(each.isoformat() for each in self.without)}" if self.without else "",
        ]
        return "; ".join(each for each in options if each)

    @property
    def left_out(self) -> frozenset[int]:
        """The dates of `without`, as days since 1970."""
        return frozenset(each.toordinal() - EPOCH_DAY for each in self.without)

    def local_times(self) -> LocalTimes | None:
        """Its local times, whatever the zone; None for intervals, which have none."""
        left_out = self.left_out
        match self.pattern:
            case Every():
                return None
            case Cron(days=days, hours=hours, minutes=minutes, seconds=seconds):
                return LocalTimes(days, hours, minutes, seconds, left_out)
            case (
                Daily(at=at, days=days)
                | Weekly(at=at, days=days)
                | Monthly(at=at, days=days)
                | Yearly(at=at, days=days)
            ):
                return LocalTimes(days, (at.hour,), (at.minute,), (at.second,), left_out)


def stamp(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat() + "Z"


def clock(at: time) -> str:
    return at.isoformat("seconds" if at.second else "minutes")
