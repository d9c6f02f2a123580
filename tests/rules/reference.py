"""A slow, independent answer to when a rule occurs: a clock on the wall is watched, step by step.

It shares nothing with the rules but what they mean. Local time comes from `zoneinfo`, which is given the bytes of the
wheel. A window of two days around a clock change is walked in steps so small that nothing happens between two of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from importlib import resources
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400
Matches = Callable[[datetime], bool]


def data_of(name: str) -> bytes:
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@cache
def zone_of(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_at(zone: ZoneInfo, t: int) -> int:
    offset = datetime.fromtimestamp(t, zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


@cache
def changes_of(zone: ZoneInfo, first_year: int, last_year: int, step: int = 6 * 3600) -> list[int]:
    """The moments at which its offset changes: looked for every six hours, then halved."""
    found = []
    t = round((datetime(first_year, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    end = round((datetime(last_year + 1, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    before = offset_at(zone, t)
    while t < end:
        after = offset_at(zone, t + step)
        if after != before:
            low, high = t, t + step
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset_at(zone, middle) == before else (low, middle)
            found.append(high)
            t, before = high - step, offset_at(zone, high)  # there may be another one soon behind it
        t += step
    return found


@dataclass(frozen=True)
class Window:
    """What the clock showed from one moment to another, as far as it was a full `unit`: a minute, or ten seconds.

    `shown` has every moment with the local time at it. `passed` has the moments at which the clock showed or leaped
    over local times that it had not shown before, with these times.
    """

    zone: ZoneInfo
    begin: int
    end: int
    shown: list[tuple[int, datetime]]
    passed: list[tuple[int, list[datetime]]]


def window(zone: ZoneInfo, around: int, half: int = 26 * 3600, unit: int = 60) -> Window:
    begin, end = (around - half) // 60 * 60, (around + half) // 60 * 60
    grain = math.gcd(unit, around, *(offset_at(zone, t) for t in range(begin, end + 1, 1800)))
    shown, passed = [], []
    last = begin + offset_at(zone, begin)
    known = {last}
    for t in range(begin + grain, end + 1, grain):
        wall = t + offset_at(zone, t)
        if wall % unit == 0:
            shown.append((t, local(wall)))
        # One time, or all of a gap; empty: the clock went back.
        between = range(last + grain, wall + 1, grain)
        new = [local(each) for each in between if each % unit == 0 and each not in known]
        known.update(between)
        if new:
            passed.append((t, new))
        last = wall
    return Window(zone, begin, end, shown, passed)


def local(seconds: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)


def elapsed(seen: Window, matches: Matches) -> list[tuple[int, str]]:
    """(moment, key) of each moment at which the clock shows a time that matches."""
    return [
        (t, (EPOCH + timedelta(seconds=t)).strftime("%Y-%m-%dT%H:%M:%SZ"))
        for t, wall in seen.shown
        if matches(wall)
    ]


def fixed(seen: Window, matches: Matches, by_date: bool) -> list[tuple[int, str]]:
    """(moment, key) of each matching time when the clock shows it for the first time, or leaps over it."""
    found: list[tuple[int, str]] = []
    for t, new in seen.passed:
        if hits := [each for each in new if matches(each)]:
            found.append((t, hits[-1].strftime("%Y-%m-%d" if by_date else "%Y-%m-%dT%H:%M:%S")))
    return found


@dataclass(frozen=True)
class Answers:
    """The occurrences in a window, and the questions that they answer."""

    occurrences: list[tuple[int, str]]

    @cached_property
    def moments(self) -> list[int]:
        return [t for t, _ in self.occurrences]

    def next(self, t: int) -> tuple[int, str] | None:
        at = bisect_right(self.moments, t)
        return self.occurrences[at] if at < len(self.occurrences) else None

    def previous(self, t: int) -> tuple[int, str] | None:
        at = bisect_left(self.moments, t)
        return self.occurrences[at - 1] if at else None

    def count(self, after: int, until: int) -> int:
        return max(0, bisect_right(self.moments, until) - bisect_right(self.moments, after))


def days_of_yearly(month: int, day: int, feb29: str, year: int) -> date | None:
    """When a birthday is celebrated."""
    try:
        return date(year, month, day)
    except ValueError:
        return {"feb28": date(year, 2, 28), "mar1": date(year, 3, 1), "skip": None}[feb29]
