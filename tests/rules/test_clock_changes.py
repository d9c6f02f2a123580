"""Occurrences around clock changes equal those of a slow reference that watches the clock on the wall.

Every zone of the wheel, every change of an offset from 1970 to 2037, rules whose times lie in the very gap or overlap,
asked from both folds and one second around each change and each occurrence. The whole matrix runs in `make faults`; an
ordinary run takes the zones that are known for being hard, and a sample of the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.rules.cron import WEEK
from holdfast.rules.patterns import Rule
from holdfast.rules.recurrence import cron, daily, monthly, weekly, yearly
from holdfast.rules.timeline import Timeline
from holdfast.schedules import zones
from tests.proof.counts import COUNTS
from tests.rules import reference
from tests.rules.reference import EPOCH, Answers, Matches, Window

FIRST_YEAR, LAST_YEAR = 1970, 2037
# Changes that are not whole hours or not at full hours, midnight gaps, days that did not exist, negative summer time,
# four changes in a year, offsets with seconds.
HARD = (
    "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Monrovia", "America/Caracas", "America/Havana",
    "America/New_York", "America/Nuuk", "America/Santiago", "America/St_Johns", "Antarctica/Casey", "Antarctica/Troll",
    "Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu", "Asia/Pyongyang", "Australia/Lord_Howe", "Europe/Dublin",
    "Pacific/Apia", "Pacific/Chatham", "Pacific/Kwajalein",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    rule: Rule
    matches: Matches  # for the reference


def cases(name: str, shown: int) -> Iterator[Case]:
    """Rules whose times lie where the clock is set; `shown` is a local time in the gap or the overlap."""
    at = reference.local(shown)
    hour, minute, day = at.hour, at.minute, at.date()
    clock = f"{hour:02}:{minute:02}"
    later = (hour + 1) % 24
    hours = sorted({hour, later})

    def same(shows: datetime) -> bool:
        return (shows.hour, shows.minute) == (hour, minute)

    yield Case(daily(clock, zone=name), same)
    yield Case(daily("00:00", zone=name), lambda shows: (shows.hour, shows.minute) == (0, 0))
    yield Case(
        weekly(WEEK[day.isoweekday() % 7], clock, zone=name),
        lambda shows: same(shows) and shows.weekday() == day.weekday(),
    )
    yield Case(
        monthly(day.day, clock, zone=name, short="skip"), lambda shows: same(shows) and shows.day == day.day
    )
    yield Case(
        yearly(day, clock, zone=name, feb29="skip"),
        lambda shows: same(shows) and (shows.month, shows.day) == (day.month, day.day),
    )
    yield Case(
        cron(f"0,{minute},59 {','.join(map(str, hours))} * * *", zone=name),
        lambda shows: shows.hour in hours and shows.minute in (0, minute, 59),
    )
    yield Case(cron("0 0-23 * * *", zone=name), lambda shows: shows.minute == 0)  # fixed: no * in it
    yield Case(
        cron(f"0 0 * * {day.isoweekday() % 7}", zone=name),
        lambda shows: (shows.hour, shows.minute) == (0, 0) and shows.weekday() == day.weekday(),
    )
    yield Case(cron("0 * * * *", zone=name), lambda shows: shows.minute == 0)
    yield Case(cron("*/20 * * * *", zone=name), lambda shows: shows.minute % 20 == 0)
    yield Case(
        cron(f"*/30 {hour} * * *", zone=name), lambda shows: shows.hour == hour and shows.minute % 30 == 0
    )
    yield Case(
        cron(f"{minute} */2 * * *", zone=name), lambda shows: shows.hour % 2 == 0 and shows.minute == minute
    )


def cases_with_seconds(name: str, shown: int) -> Iterator[Case]:
    at = reference.local(shown)
    hour, minute = at.hour, at.minute
    hours = sorted({hour, (hour + 1) % 24})
    fixed = f"0,10,50 0,{minute},59 {','.join(map(str, hours))} * * *"
    yield Case(
        cron(fixed, zone=name),
        lambda shows: shows.hour in hours and shows.minute in (0, minute, 59) and shows.second in (0, 10, 50),
    )
    yield Case(cron("*/20 * * * * *", zone=name), lambda shows: shows.second % 20 == 0)
    yield Case(
        cron(f"30 {minute} * * * *", zone=name), lambda shows: (shows.minute, shows.second) == (minute, 30)
    )


def differences(name: str, change: int, seconds: bool = False) -> Iterator[str]:
    """What the rules say otherwise than the reference, around one change."""
    zone = reference.zone_of(name)
    seen = reference.window(zone, change, 3 * 3600, 10) if seconds else reference.window(zone, change)
    before, after = (reference.offset_at(zone, t) for t in (change - 1, change))
    middle = (change + (before + after) // 2) // 60 * 60  # of the gap or overlap
    for case in (cases_with_seconds if seconds else cases)(name, middle):
        timeline = Timeline(case.rule, zones.zone(name))
        if case.rule.is_elapsed:
            expected = reference.elapsed(seen, case.matches)
        else:
            expected = reference.fixed(seen, case.matches, not case.rule.text.startswith("cron"))
        for wrong in compared(timeline, Answers(expected), seen, change, abs(after - before)):
            yield f"{name}, change at {EPOCH + timedelta(seconds=change)}, {case.rule.text}: {wrong}"


def compared(timeline: Timeline, answers: Answers, seen: Window, change: int, size: int) -> Iterator[str]:
    near = (change - seen.begin) // 8
    asked = {change + by + second for by in (0, -size, size, -size // 2, size // 2) for second in (-1, 0, 1)}
    asked |= {t + second for t in answers.moments if abs(t - change) < near for second in (-1, 0, 1)}
    first = (seen.begin + change) // 2  # before it the reference may not know what the clock has shown
    for t in sorted(each for each in asked if first <= each <= seen.end):
        moment = datetime.fromtimestamp(t, seen.zone)  # of either fold
        found = timeline.next(moment)
        if found is not None and found.at <= moment:
            yield f"next({moment}) is {found.at}"
        got = (round((found.at - EPOCH).total_seconds()), found.key) if found else None
        wanted = answers.next(t)
        if got != wanted and not (wanted is None and (got is None or got[0] > seen.end)):
            yield f"next({moment}) is {got} and should be {wanted}"
        found = timeline.previous(moment)
        got = (round((found.at - EPOCH).total_seconds()), found.key) if found else None
        wanted = answers.previous(t)
        if got != wanted and not (wanted is None and (got is None or got[0] <= seen.begin)):
            yield f"previous({moment}) is {got} and should be {wanted}"
        for low, high in ((first, t), (t, seen.end)):
            number = timeline.count(*(EPOCH + timedelta(seconds=each) for each in (low, high)))
            if number != answers.count(low, high):
                yield f"count({low}, {high}) is {number} and should be {answers.count(low, high)}"


def size_of(name: str, change: int) -> int:
    """By how many seconds the clock is set."""
    zone = reference.zone_of(name)
    return abs(reference.offset_at(zone, change) - reference.offset_at(zone, change - 1))


def check(name: str, changes: list[int]) -> None:
    wrong = [each for change in changes for each in differences(name, change)]
    COUNTS.add("recurrence", "clock changes", len(changes))
    assert wrong == []


# --- A sample, and everything ------------------------------------------------------------------------------------


@pytest.mark.covers("X56")
@pytest.mark.parametrize("name", HARD)
def test_hard_zones(name: str) -> None:
    changes = reference.changes_of(reference.zone_of(name), FIRST_YEAR, LAST_YEAR)
    chosen = random.Random(name).sample(changes, min(3, len(changes)))
    check(name, chosen)


@pytest.mark.covers("X56")
@pytest.mark.parametrize("name", HARD)
def test_rules_with_seconds(name: str) -> None:
    every_one = reference.changes_of(reference.zone_of(name), FIRST_YEAR, LAST_YEAR)
    changes = [change for change in every_one if size_of(name, change) <= 3600]
    wrong = [
        each for change in changes[:1] + changes[-1:] for each in differences(name, change, seconds=True)
    ]
    assert wrong == []


@pytest.mark.covers("X56")
def test_a_sample_of_all_zones() -> None:
    for name in random.Random(7).sample(sorted(zones.names()), 25):
        changes = reference.changes_of(reference.zone_of(name), 1990, 2037, 5 * reference.DAY)
        check(name, changes[-1:] + changes[:1])


def by_data() -> list[list[str]]:
    """Zones that have the same data under several names are one."""
    groups: dict[bytes, list[str]] = {}
    for name in sorted(zones.names()):
        groups.setdefault(reference.data_of(name), []).append(name)
    return list(groups.values())


@pytest.mark.covers("X56")
@pytest.mark.faults("recurrence")
@pytest.mark.parametrize("part", range(40))
def test_every_zone_and_every_change(part: int) -> None:
    for group in by_data()[part::40]:
        name = group[0]
        for alias in group[1:]:  # the same table, so the same answers
            assert zones.zone(alias).starts == zones.zone(name).starts
            assert zones.zone(alias).offsets == zones.zone(name).offsets
        ours = {t for t in zones.zone(name).starts if 0 <= t < LAST}
        check(name, sorted({*reference.changes_of(reference.zone_of(name), FIRST_YEAR, LAST_YEAR), *ours}))


LAST = round((datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())


@pytest.mark.covers("X56")
@pytest.mark.parametrize("feb29", ["feb28", "mar1", "skip"])
@pytest.mark.parametrize("name", ["UTC", "Pacific/Apia", "America/New_York"])
def test_29_february(name: str, feb29: str) -> None:
    rule = yearly("02-29", "09:00", zone=name, feb29=feb29)  # type: ignore[arg-type]
    timeline = Timeline(rule, zones.zone(name))
    found = timeline.occurrences(datetime(1950, 6, 1, tzinfo=UTC), datetime(2150, 1, 1, tzinfo=UTC), 1000)
    days = [reference.days_of_yearly(2, 29, feb29, year) for year in range(1951, 2150)]
    assert [each.key for each in found] == [day.isoformat() for day in days if day]
    assert {timeline.local(each.at).strftime("%H:%M:%S") for each in found} == {"09:00:00"}
    assert [f"{timeline.local(each.at):%Y-%m-%d}" for each in found] == [each.key for each in found]
