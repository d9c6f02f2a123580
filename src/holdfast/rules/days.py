"""Sets of local times: which days of the calendar, and which times of those days. They know no zone.

`Days` says which days of a month belong to a rule, as a mask with a bit for each day. `LocalTimes` searches and counts
local seconds (see `zones`): `ceil` and `floor` find the nearest one, `count` does not walk through them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import date

from .zones import DAY, END, EPOCH_DAY, FIRST

ALL_DAYS = 0xFFFFFFFE  # bits 1 to 31
ALL_WEEK = 0x7F  # bit 0 is Monday, as in date.weekday()
ALL_MONTHS = 0x1FFE  # bits 1 to 12
LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
FIVE_WEEKS = 1 + (1 << 7) + (1 << 14) + (1 << 21) + (1 << 28)
FEB29 = ("feb28", "mar1", "skip")


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def length_of(year: int, month: int) -> int:
    return 29 if month == 2 and is_leap(year) else LENGTHS[month]


@dataclass(frozen=True, slots=True)
class Days:
    """Some days of some months.

    `both` combines the two ways of naming days: a day must be in both, or one is enough (cron, when day of month and
    day of week are both restricted).
    """

    months: int = ALL_MONTHS
    month_days: int = ALL_DAYS
    from_last: tuple[int, ...] = ()  # 0 is the last day of the month, 1 the one before
    last_weekday: bool = False  # the last Monday to Friday
    nearest: tuple[int, ...] = ()  # the Monday to Friday nearest to this day, in the same month
    week_days: int = ALL_WEEK
    nth: tuple[tuple[int, int], ...] = ()  # (weekday, 1 to 5, or 0 for the last)
    both: bool = True
    clipped: bool = False  # a day that a month does not have is its last day
    feb29: str = "skip"  # the day that stands for 29 February in other years

    def mask(self, year: int, month: int) -> int:
        """A bit for each day of that month: bit 1 for the 1st."""
        if not self.months >> month & 1:
            return 0
        first = date(year, month, 1).toordinal()
        length = length_of(year, month)
        if self.feb29 != "skip":
            return self._mask_of_feb29(month, is_leap(year))
        weekday = (first + 6) % 7
        by_month = self._by_month(length, weekday)
        if self.week_days == ALL_WEEK and self.both:
            return by_month
        by_week = self._by_week(length, weekday)
        return by_month & by_week if self.both else by_month | by_week

    def _by_month(self, length: int, first: int) -> int:
        whole = (2 << length) - 2
        mask = self.month_days & whole
        if self.clipped and self.month_days & ~whole:
            mask |= 1 << length
        for back in self.from_last:
            mask |= 1 << length - back if back < length else 0
        if self.last_weekday:
            mask |= 1 << nearest_weekday(length, length, first)
        for day in self.nearest:
            mask |= 1 << nearest_weekday(day, length, first) if day <= length else 0
        return mask

    def _by_week(self, length: int, first: int) -> int:
        turned = (self.week_days >> first | self.week_days << 7 - first) & ALL_WEEK
        mask = (turned * FIVE_WEEKS << 1) & (2 << length) - 2
        for weekday, number in self.nth:
            day = 1 + (weekday - first) % 7
            day += 7 * (number - 1) if number else (length - day) // 7 * 7
            mask |= 1 << day if day <= length else 0
        return mask

    def _mask_of_feb29(self, month: int, leap: bool) -> int:
        """Once in every year: on 29 February, or on the day that stands for it."""
        if month == 2:
            return 1 << 29 if leap else 1 << 28 if self.feb29 == "feb28" else 0
        return 1 << 1 if not leap and self.feb29 == "mar1" else 0


EVERY_DAY = Days()


def nearest_weekday(day: int, length: int, first: int) -> int:
    """The Monday to Friday nearest to a day, within the month."""
    weekday = (first + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """Every combination of these hours, minutes and seconds, on these days but for those that are left out.

    The tuples are sorted. `left_out` holds days since 1970, as `DAY` counts them.
    """

    days: Days
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...] = (0,)
    left_out: frozenset[int] = frozenset()
    holes: dict[tuple[int, int], int] = field(init=False, compare=False, repr=False)
    only: int | None = field(init=False, compare=False, repr=False)  # the second of a day that has one time
    every_day: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        holes: dict[tuple[int, int], int] = {}
        for each in self.left_out:
            day = date.fromordinal(each + EPOCH_DAY)
            holes[day.year, day.month] = holes.get((day.year, day.month), 0) | 1 << day.day
        object.__setattr__(self, "holes", holes)
        object.__setattr__(self, "only", self._time(0) if self.a_day == 1 else None)
        object.__setattr__(self, "every_day", not holes and self.days == EVERY_DAY)

    @property
    def a_day(self) -> int:
        """How many times a day has."""
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def ceil(self, local: int, end: int = END) -> int | None:
        """The first of them at or after a local time and before `end`."""
        if self.only is not None:
            day = -((self.only - max(local, FIRST)) // DAY)  # the first on which it is not earlier
            found = day if self.every_day else self._day_from(day, end)
            at = END if found is None else found * DAY + self.only
            return at if at < end else None
        day, second = divmod(max(local, FIRST), DAY)
        found = self._day_from(day, end)
        if found == day and (time := self._time_from(second)) is not None:
            return day * DAY + time if day * DAY + time < end else None
        if found == day:
            found = self._day_from(day + 1, end)
        if found is None:
            return None
        at = found * DAY + self._time(0)
        return at if at < end else None

    def floor(self, local: int, begin: int = FIRST) -> int | None:
        """The last of them at or before a local time, and not before `begin`."""
        if self.only is not None:
            day = (min(local, END - 1) - self.only) // DAY
            found = day if self.every_day else self._day_to(day, begin)
            at = FIRST - 1 if found is None else found * DAY + self.only
            return at if at >= begin else None
        day, second = divmod(min(local, END - 1), DAY)
        found = self._day_to(day, begin)
        if found == day and (rank := self._rank(second + 1)):
            at = day * DAY + self._time(rank - 1)
            return at if at >= begin else None
        if found == day:
            found = self._day_to(day - 1, begin)
        if found is None:
            return None
        at = found * DAY + self._time(self.a_day - 1)
        return at if at >= begin else None

    def count(self, begin: int, end: int) -> int:
        """How many there are from `begin` up to, but not including, `end`."""
        begin, end = max(begin, FIRST), min(end, END)
        return self._before(begin, end) if begin < end else 0

    def _before(self, begin: int, end: int) -> int:
        first, second = divmod(begin, DAY)
        last, until = divmod(end, DAY)
        number = self._days(first, last) * self.a_day
        if second and self._has(first):
            number -= self._rank(second)
        if until and self._has(last):
            number += self._rank(until)
        return number

    # --- Days -------------------------------------------------------------------------------------------------

    def _mask(self, year: int, month: int) -> int:
        mask = self.days.mask(year, month)
        return mask & ~self.holes.get((year, month), 0) if self.holes else mask

    def _has(self, day: int) -> bool:
        at = date.fromordinal(day + EPOCH_DAY)
        return bool(self._mask(at.year, at.month) >> at.day & 1)

    def _day_from(self, day: int, end: int) -> int | None:
        """The first day of ours at or after this one, and not behind the day of `end`."""
        at = date.fromordinal(day + EPOCH_DAY)
        year, month = at.year, at.month
        mask = self._mask(year, month) >> at.day << at.day
        if mask >> at.day & 1:
            return day
        last = date.fromordinal(min(END - 1, end) // DAY + EPOCH_DAY)
        while not mask:
            month += 1
            if month > 12:
                year, month = year + 1, 1
            if (year, month) > (last.year, last.month):
                return None
            if self.days.months >> month & 1:
                mask = self._mask(year, month)
        return date(year, month, (mask & -mask).bit_length() - 1).toordinal() - EPOCH_DAY

    def _day_to(self, day: int, begin: int) -> int | None:
        """The last day of ours at or before this one, and not in a month before that of `begin`."""
        at = date.fromordinal(day + EPOCH_DAY)
        year, month = at.year, at.month
        mask = self._mask(year, month) & (2 << at.day) - 1
        if mask >> at.day:
            return day
        first = date.fromordinal(max(FIRST, begin) // DAY + EPOCH_DAY)
        while not mask:
            month -= 1
            if month < 1:
                year, month = year - 1, 12
            if (year, month) < (first.year, first.month):
                return None
            if self.days.months >> month & 1:
                mask = self._mask(year, month)
        return date(year, month, mask.bit_length() - 1).toordinal() - EPOCH_DAY

    def _days(self, first: int, last: int) -> int:
        """How many days of ours there are from one up to, but not including, another."""
        if first >= last:
            return 0
        begin, end = (date.fromordinal(day + EPOCH_DAY) for day in (first, last))
        number = 0
        year, month = begin.year, begin.month
        while (year, month) <= (end.year, end.month):
            if self.days.months >> month & 1:
                mask = self._mask(year, month)
                if (year, month) == (begin.year, begin.month):
                    mask = mask >> begin.day << begin.day
                if (year, month) == (end.year, end.month):
                    mask &= (1 << end.day) - 1
                number += mask.bit_count()
            month += 1
            if month > 12:
                year, month = year + 1, 1
        return number

    # --- Times of a day, numbered from 0 ------------------------------------------------------------------------

    def _time(self, number: int) -> int:
        rest, second = divmod(number, len(self.seconds))
        hour, minute = divmod(rest, len(self.minutes))
        return self.hours[hour] * 3600 + self.minutes[minute] * 60 + self.seconds[second]

    def _rank(self, time: int) -> int:
        """How many times of a day are earlier than this one."""
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        at = bisect_left(self.hours, hour)
        rank = at * len(self.minutes)
        if at == len(self.hours) or self.hours[at] != hour:
            return rank * len(self.seconds)
        at = bisect_left(self.minutes, minute)
        rank = (rank + at) * len(self.seconds)
        if at == len(self.minutes) or self.minutes[at] != minute:
            return rank
        return rank + bisect_left(self.seconds, second)

    def _time_from(self, time: int) -> int | None:
        number = self._rank(time)
        return self._time(number) if number < self.a_day else None
