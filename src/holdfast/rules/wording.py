"""Rules in words, and notes on clock changes, for people who ask what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import assert_never

from .cron import Cron
from .patterns import Daily, Every, Monthly, Rule, Weekly, Yearly, clock, stamp
from .timeline import Occurrence, Timeline
from .zones import EPOCH, Change, seconds_of, wall

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
NUMBERS = {"1": "first", "2": "second", "3": "third", "4": "fourth", "5": "fifth", "L": "last"}
UNITS = ((7 * 86_400, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
TIMES_MAX = 6  # that are named one by one


@dataclass(frozen=True, slots=True)
class Upcoming:
    """An occurrence, its local time, and a note about it."""

    occurrence: Occurrence
    local: datetime
    note: str | None


def upcoming(timeline: Timeline, after: datetime, number: int) -> tuple[Upcoming, ...]:
    """The next so many occurrences."""
    found: list[Upcoming] = []
    each = timeline.next(after)
    while each is not None and len(found) < number:
        found.append(Upcoming(each, timeline.local(each.at), note(timeline, each)))
        each = timeline.next(each.at)
    return tuple(found)


# --- Clock changes ------------------------------------------------------------------------------------------------


def note(timeline: Timeline, occurrence: Occurrence) -> str | None:
    """A sentence about a clock change at this occurrence; None: there is none.

    `02:30 does not exist on 29 March: the clock goes from 02:00 to 03:00, so it runs at 03:00`
    """
    if isinstance(timeline.rule.pattern, Every):
        return None
    at = seconds_of(occurrence.at)
    before, after = timeline.zone.change_before(at), timeline.zone.change_after(at)
    local = timeline.zone.local(at)
    if before is not None and before.forward and before.at == at:
        missing = [each for each in timeline.meant(occurrence) if each != wall(local)]
        if missing:
            return _missing(missing, before)
    if before is not None and not before.forward and local < before.begins:  # elapsed rules only
        return f"this is the second {_named(wall(local))}: the clock has gone back {_way(before)}"
    if after is not None and not after.forward and local >= after.ends:
        runs = "at both" if timeline.rule.is_elapsed else "at the first only"
        when, day = _hour(wall(local)), _date(wall(local).date())
        return f"{when} comes twice on {day}: the clock goes back {_way(after)}, and it runs {runs}"
    return None


def _missing(times: Sequence[datetime], change: Change) -> str:
    if len(times) > 3:
        named, verb = f"{_hour(times[0])} to {_hour(times[-1])}", "do"
    else:
        named, verb = _listed(_hour(each) for each in times), "does" if len(times) == 1 else "do"
    end, day = wall(change.ends), times[-1].date()
    where = "" if end.date() == day else f" on {_date(end.date())}"
    runs = f"so it runs at {_hour(end)}{where}"
    return f"{named} {verb} not exist on {_date(day)}: the clock goes {_way(change)}, {runs}"


def _way(change: Change) -> str:
    """`from 02:00 to 03:00`, with the days if they differ."""
    begin, end = wall(change.begins), wall(change.ends)
    if begin.date() == end.date():
        return f"from {_hour(begin)} to {_hour(end)}"
    return f"from {_named(begin)} to {_named(end)}"


def _named(moment: datetime) -> str:
    return f"{_hour(moment)} on {_date(moment.date())}"


def _hour(moment: datetime) -> str:
    return clock(moment.time())


def _date(day: date) -> str:
    return f"{day.day} {MONTHS[day.month]}"


# --- Rules --------------------------------------------------------------------------------------------------------


def describe(rule: Rule) -> str:
    """`every day at 02:30, Europe/Berlin`"""
    parts = [_pattern(rule)]
    if not isinstance(rule.pattern, Every):
        parts.append(rule.zone)
    if rule.start and not (isinstance(rule.pattern, Every) and rule.pattern.anchor == rule.start):
        parts.append(f"from {_moment(rule.start)}")
    if rule.end:
        parts.append(f"until {_moment(rule.end)}")
    if rule.jitter:
        parts.append(f"each up to {_span(rule.jitter)} later")
    if len(rule.without) > TIMES_MAX:
        parts.append(f"but not on {len(rule.without)} dates")
    elif rule.without:
        parts.append(f"but not on {_listed(each.isoformat() for each in rule.without)}")
    return ", ".join(parts)


def _pattern(rule: Rule) -> str:
    match rule.pattern:
        case Every(seconds=seconds, anchor=anchor):
            counted = "" if anchor == EPOCH else f", counted from {_moment(anchor)}"
            return f"every {_span(seconds, alone=True)}{counted}"
        case Daily(at=at):
            return f"every day at {clock(at)}"
        case Weekly(weekdays=weekdays, at=at):
            return f"every {_weekdays(weekdays)} at {clock(at)}"
        case Monthly(at=at):
            return f"on {_month_day(rule.pattern)} of every month at {clock(at)}"
        case Yearly(month=month, day=day, at=at):
            other = {"feb28": " (28 February in other years)", "mar1": " (1 March in other years)"}
            leap = other.get(rule.pattern.feb29, " (in leap years only)") if rule.pattern.on_feb29 else ""
            return f"every year on {day} {MONTHS[month]}{leap} at {clock(at)}"
        case Cron():
            return _cron(rule.pattern)
    assert_never(rule.pattern)


def _month_day(pattern: Monthly) -> str:
    weekday, sign, number = pattern.day.partition("#")
    if sign:
        full = next(each for each in WEEKDAYS if each.upper().startswith(weekday))
        return f"the {NUMBERS[number]} {full}"
    if pattern.can_be_short:
        other = "the last day of shorter ones" if pattern.short == "last" else "shorter ones are left out"
        return f"day {pattern.day} ({other})"
    return _special(pattern.day)


def _special(text: str) -> str:
    """L, LW, L-3, 15W, */2 or numbers, of a month."""
    if text.startswith("*/"):
        return f"every {text[2:]} days from the first on"
    if text == "L":
        return "the last day"
    if text == "LW":
        return "the last Monday to Friday"
    if text.startswith("L-"):
        return f"the day {text[2:]} before the last"
    if text.endswith("W"):
        return f"the Monday to Friday nearest to day {text[:-1]}"
    return f"day {text}"


# --- Cron ---------------------------------------------------------------------------------------------------------


def _cron(cron: Cron) -> str:
    month_day, month, week_day = cron.text.split(" ")[-3:]
    days = _cron_days(month_day, week_day)
    months = "" if month == "*" else f" in {_cron_months(month)}"
    return f"{_cron_times(cron)}{f' {days}' if days else ' every day' if not cron.elapsed else ''}{months}"


def _cron_times(cron: Cron) -> str:
    if not cron.elapsed and len(cron.hours) * len(cron.minutes) * len(cron.seconds) <= TIMES_MAX:
        times = [time(h, m, s) for h in cron.hours for m in cron.minutes for s in cron.seconds]
        return f"at {_listed(clock(each) for each in times)}"
    *second, minute, hour = cron.text.split(" ")[:-3]
    parts = [_part(second[0], "second")] if second else []
    if not (second and second[0].startswith("*") and minute == "*"):
        parts.append(_part(minute, "minute"))
    if hour != "*" or not minute.startswith("*"):
        parts.append(_part(hour, "hour"))
    return ("" if parts[0].startswith("every") else "at ") + " of ".join(parts)


def _part(text: str, unit: str) -> str:
    """`*/15` -> every 15 minutes, `0,30` -> minutes 0 and 30."""
    stars = [each for each in text.split(",") if each.startswith("*")]
    others = [each.replace("-", " to ") for each in text.split(",") if not each.startswith("*")]
    named = [f"every {unit}" if each == "*" else f"every {each[2:]} {unit}s" for each in stars]
    if others:
        many = len(others) > 1 or " to " in others[0]
        named.append(f"{unit}{'s' if many else ''} {_listed(others)}")
    return _listed(named)


def _cron_days(month_day: str, week_day: str) -> str:
    named = []
    if month_day != "*":
        parts = [
            _special(each.replace("-", " to ") if each[0] != "L" else each) for each in month_day.split(",")
        ]
        named.append(f"on {_listed(parts)} of the month")
    if week_day != "*":
        named.append(f"on {_listed(_cron_weekday(each) for each in week_day.split(','))}")
    is_both = month_day.startswith("*") or week_day.startswith("*")
    return (" and " if is_both else " or ").join(named)


def _cron_weekday(text: str) -> str:
    if text.startswith("*"):
        return f"every {text[2:]} days of the week from Sunday on"
    day, sign, number = text.partition("#")
    if sign:
        return f"the {NUMBERS[number]} {WEEKDAYS[(int(day) + 6) % 7]} of the month"
    return " to ".join(WEEKDAYS[(int(each) + 6) % 7] for each in text.split("-"))


def _cron_months(text: str) -> str:
    if text.startswith("*"):
        return f"every {text[2:]} months from January on"
    return _listed(" to ".join(MONTHS[int(each)] for each in part.split("-")) for part in text.split(","))


# --- Words --------------------------------------------------------------------------------------------------------


def _weekdays(days: tuple[int, ...]) -> str:
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        return f"{WEEKDAYS[days[0]]} to {WEEKDAYS[days[-1]]}"
    return _listed(WEEKDAYS[each] for each in days)


def _span(seconds: int, alone: bool = False) -> str:
    """`15 minutes`; with `alone` `minute` instead of `1 minute`."""
    size, unit = next(each for each in UNITS if seconds % each[0] == 0)
    number = seconds // size
    return f"{number} {unit}s" if number > 1 else unit if alone else f"1 {unit}"


def _moment(moment: datetime) -> str:
    return stamp(moment).replace("T", " ").removesuffix("Z").removesuffix(":00") + " UTC"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
