"""When something recurs: the rules as users write them, and as they are read from their stored text.

    cron("0 9 * * MON-FRI", zone="America/New_York")     daily("02:30", zone="Europe/Berlin")
    every(minutes=15)                                    weekly("MON,THU", "09:00", zone="Europe/Berlin")
    monthly(31, "09:00", zone="Asia/Tokyo")              yearly(user.born, "09:00", zone=user.zone, feb29="mar1")

A rule that cannot work is refused with the place of the mistake. A rule holds the name of its zone and no zone data;
`timeline.Timeline` combines the two and computes the occurrences.

Fixed times (`0 9 * * *`, daily to yearly) are local times: one that does not exist on a day, because the clock is set
forward, runs once, at the end of the gap; one that occurs twice runs once, at the first. Elapsed rules (`every`, and
cron with a * in seconds, minutes or hours) count elapsed time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TypedDict, Unpack

from ..errors import InvalidSettings
from . import cron as crontab
from .cron import WEEK
from .days import FEB29, LENGTHS
from .patterns import Daily, Every, Feb29, Monthly, Pattern, Rule, Short, Weekly, Yearly, stamp
from .zones import EPOCH, FIRST_YEAR, LAST_YEAR, aware

EVERY_MAX = 366 * 86_400  # seconds
JITTER_MAX = 7 * 86_400
WITHOUT_MAX = 400
UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 7 * 86_400}


class Bounds(TypedDict, total=False):
    """What every rule takes. `without` are dates on which it does not run, `jitter` seconds that it may be late."""

    start: datetime | None
    end: datetime | None
    jitter: int
    without: Iterable[date | str]


class RuleOptions(Bounds, total=False):
    """What a rule takes that uses the local time of a zone; default: UTC."""

    zone: str


# --- As users write them ---------------------------------------------------------------------------------------


def cron(expression: str, **options: Unpack[RuleOptions]) -> Rule:
    """A cron expression of 5 fields, or of 6 with the seconds first: `rules.cron` says what they may contain."""
    return _rule(crontab.parse(expression), **options)


def every(
    *,
    seconds: int = 0,
    minutes: int = 0,
    hours: int = 0,
    days: int = 0,
    weeks: int = 0,
    anchor: datetime | None = None,
    **options: Unpack[Bounds],
) -> Rule:
    """An interval of whole seconds, whatever clocks show: a day is 24 hours.

    It is counted from `anchor`; without one from `start`, else from midnight UTC of 1 January 1970, so that every 15
    minutes means :00, :15, :30 and :45. The dates of `without` are dates in UTC.
    """
    if "zone" in options:
        raise InvalidSettings(
            "every(zone=...) is refused: it counts elapsed time, which is the same in every zone."
        )
    length = _length(seconds=seconds, minutes=minutes, hours=hours, days=days, weeks=weeks)
    start = options.get("start")
    counted = anchor if anchor is not None else start if start is not None else EPOCH
    return _rule(Every(length, _whole(counted, "anchor")), **options)


def daily(at: str | time, **options: Unpack[RuleOptions]) -> Rule:
    """Every day at a local time, `daily("02:30", zone="Europe/Berlin")`."""
    return _rule(Daily(_time(at)), **options)


def weekly(
    weekdays: str | Iterable[str],
    at: str | time,
    **options: Unpack[RuleOptions],
) -> Rule:
    """On weekdays at a local time: `weekly("MON,THU", "09:00")`, `weekly("MON-FRI", "09:00")`."""
    return _rule(Weekly(_weekdays(weekdays), _time(at)), **options)


def monthly(
    day: int | str,
    at: str | time,
    *,
    short: Short = "last",
    **options: Unpack[RuleOptions],
) -> Rule:
    """On a day of every month: 1 to 31, `L`, `LW`, `15W`, `TUE#2`.

    Months that do not have the 29th, 30th or 31st: `short="last"` takes their last day, `short="skip"` leaves them out.
    """
    if short not in ("last", "skip"):
        raise InvalidSettings(f"monthly(short={short!r}) is refused: use 'last' or 'skip'.")
    named = _month_day(day)
    chosen: Short = short if named in ("29", "30", "31") else "last"
    return _rule(Monthly(named, _time(at), chosen), **options)


def yearly(
    on: date | str,
    at: str | time,
    *,
    feb29: Feb29 = "feb28",
    **options: Unpack[RuleOptions],
) -> Rule:
    """Every year on a date, given as a date (its year does not matter) or as `MM-DD`.

    Of 29 February `feb29` says what happens in other years: `feb28`, `mar1` or `skip`.
    """
    if feb29 not in FEB29:
        raise InvalidSettings(f"yearly(feb29={feb29!r}) is refused: use {', '.join(map(repr, FEB29))}.")
    month, day = _month_and_day(on)
    chosen: Feb29 = feb29 if (month, day) == (2, 29) else "feb28"
    return _rule(Yearly(month, day, _time(at), chosen), **options)


def _rule(
    pattern: Pattern,
    zone: object = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
    jitter: object = 0,
    without: Iterable[date | str] = (),
    **others: object,
) -> Rule:
    if others:
        raise InvalidSettings(
            f"{', '.join(others)} is refused: a rule takes zone (not every), start, end, jitter and without."
        )
    if not isinstance(zone, str) or not re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", zone):
        raise InvalidSettings(f"zone={zone!r} is refused: name an IANA zone such as 'Europe/Berlin'.")
    if isinstance(jitter, bool) or not isinstance(jitter, int) or not 0 <= jitter <= JITTER_MAX:
        raise InvalidSettings(f"jitter={jitter!r} is refused: give whole seconds from 0 to {JITTER_MAX}.")
    begin, finish = (_bound(each, what) for each, what in ((start, "start"), (end, "end")))
    if begin and finish and finish < begin:
        raise InvalidSettings(
            f"end={stamp(finish)} is before start={stamp(begin)}: such a rule never runs. Swap them."
        )
    return Rule(pattern, zone, begin, finish, jitter, _dates(without))


# --- Checks of single values -----------------------------------------------------------------------------------


def _length(**given: object) -> int:
    length = 0
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidSettings(f"every({name}={value!r}) is refused: give a whole number above 0.")
        length += value * UNITS[name]
    if not 1 <= length <= EVERY_MAX:
        raise InvalidSettings(
            f"every() of {length} seconds is refused: give an interval from 1 second to {EVERY_MAX // 86_400} days, "
            "for example every(minutes=15)."
        )
    return length


def _time(at: object) -> time:
    if isinstance(at, str):
        found = re.fullmatch(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", at)
        if found:
            return time(int(found[1]), int(found[2]), int(found[3] or 0))
    elif isinstance(at, time) and at.tzinfo is None and not at.microsecond:
        return at.replace(fold=0)
    raise InvalidSettings(
        f"The time {at!r} is refused: write '09:00' or '09:00:30', from 00:00 to 23:59:59; the zone is given apart."
    )


def _weekdays(given: object) -> tuple[int, ...]:
    words = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not words or not all(isinstance(each, str) and each for each in words):
        raise InvalidSettings(f"weekly({given!r}) is refused: name weekdays, 'MON,THU' or 'MON-FRI'.")
    text = ",".join(str(each) for each in words)
    if found := re.search(r"[0-9*?#/]", text):
        raise InvalidSettings(
            f"weekly({text!r}) is refused at character {found.start() + 1}, {found[0]!r}: "
            "name weekdays, 'MON,THU' or 'MON-FRI'."
        )
    field = crontab.week_days(text.replace(" ", ""), "weekly rule")
    if field.special:
        raise InvalidSettings(f"weekly({text!r}) is refused: use monthly('FRI#L', ...) for such days.")
    return tuple(sorted((each + 6) % 7 for each in field.values))


def _month_day(day: object) -> str:
    if isinstance(day, int) and not isinstance(day, bool) and 1 <= day <= 31:
        return str(day)
    if isinstance(day, str):
        text, rule = day.strip().upper(), "monthly rule"
        is_weekday = "#" in text or (text.endswith("L") and len(text) > 1)
        field = crontab.week_days(text, rule) if is_weekday else crontab.month_days(text, rule)
        if not field.star and len(field.values) + len(field.special) == 1 and "," not in text:
            return _with_name(field.text)
    raise InvalidSettings(
        f"monthly({day!r}) is refused: give one day, a number from 1 to 31, 'L' (the last), 'LW' (the last Monday to "
        "Friday), '15W' (the Monday to Friday nearest to the 15th) or 'TUE#2' (the second Tuesday)."
    )


def _with_name(text: str) -> str:
    """2#2 -> TUE#2."""
    day, sign, number = text.partition("#")
    return f"{WEEK[int(day)]}#{number}" if sign else text


def _month_and_day(on: object) -> tuple[int, int]:
    if isinstance(on, date):
        return on.month, on.day
    if isinstance(on, str) and (found := re.fullmatch(r"(?:[0-9]{4}-)?([0-9]{2})-([0-9]{2})", on)):
        month, day = int(found[1]), int(found[2])
        if 1 <= month <= 12 and 1 <= day <= (29 if month == 2 else LENGTHS[month]):
            return month, day
    raise InvalidSettings(f"yearly({on!r}) is refused: give a date, or the month and day of one, '02-29'.")


def _bound(moment: datetime | None, what: str) -> datetime | None:
    if moment is None:
        return None
    found = aware(moment, what).astimezone(UTC)
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        raise InvalidSettings(
            f"{what}={moment} is refused: give a moment in the years {FIRST_YEAR} to {LAST_YEAR}."
        )
    return found


def _whole(moment: datetime, what: str) -> datetime:
    found = _bound(moment, what)
    assert found is not None
    return found.replace(microsecond=0) + timedelta(seconds=1 if found.microsecond else 0)


def _dates(without: object) -> tuple[date, ...]:
    if isinstance(without, str | date) or not isinstance(without, Iterable):
        raise InvalidSettings(f"without={without!r} is refused: give a list of dates, ['2026-12-24'].")
    found = set()
    for each in without:
        if isinstance(each, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", each):
            try:
                each = date.fromisoformat(each)
            except ValueError:
                pass
        if not isinstance(each, date) or isinstance(each, datetime):
            raise InvalidSettings(
                f"without: {each!r} is refused: give dates, date(2026, 12, 24) or '2026-12-24'."
            )
        found.add(each)
    if len(found) > WITHOUT_MAX:
        raise InvalidSettings(
            f"without has {len(found)} dates, and {WITHOUT_MAX} are allowed: drop past ones."
        )
    return tuple(sorted(found))


# --- The stored text -------------------------------------------------------------------------------------------

STAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"
EVERY = re.compile(rf"every ([0-9]{{1,9}})s(?: from ({STAMP}))?")
OPTION = re.compile(rf"(start|end) ({STAMP})|(jitter) ([0-9]{{1,9}})s|(without) ([0-9,-]+)")


@lru_cache(maxsize=4096)  # a tick reads the same few texts again and again
def parse(text: str) -> Rule:
    """The rule that has this text. Texts written by hand may use all that the constructors accept."""
    head, *rest = text.split("; ")
    options = _options(text, rest)
    start, end = options.get("start"), options.get("end")
    jitter, without = int(options.get("jitter", "0")), options.get("without", "")
    common = (_moment(start), _moment(end), jitter, without.split(",") if without else ())
    if found := EVERY.fullmatch(head):
        anchor = _moment(found[2]) if found[2] else EPOCH
        assert anchor is not None
        return _rule(Every(_length(seconds=int(found[1])), _whole(anchor, "anchor")), "UTC", *common)
    body, _, zone = head.rpartition(" in ")
    return _rule(_pattern(text, body), zone, *common)


def _pattern(text: str, body: str) -> Pattern:
    match body.split(" "):
        case ["cron", *_]:
            return crontab.parse(body.removeprefix("cron "))
        case ["daily", at]:
            return Daily(_time(at))
        case ["weekly", names, at]:
            return Weekly(_weekdays(names), _time(at))
        case ["monthly", day, at]:
            return Monthly(_month_day(day), _time(at))
        case ["monthly", "29" | "30" | "31" as day, at, "skip"]:
            return Monthly(day, _time(at), "skip")
        case ["yearly", on, at]:
            return Yearly(*_month_and_day(on), _time(at))
        case ["yearly", "02-29", at, "feb28" | "mar1" | "skip" as feb29]:
            return Yearly(2, 29, _time(at), feb29)
    raise InvalidSettings(
        f"The rule {text!r} is refused: it must begin with every, cron, daily, weekly, monthly or yearly and name "
        "its zone, for example 'daily 02:30 in Europe/Berlin' or 'every 900s'."
    )


def _options(text: str, parts: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for each in parts:
        found = OPTION.fullmatch(each)
        if found is None:
            raise InvalidSettings(
                f"The rule {text!r} is refused at character {text.index(each) + 1}: {each!r} is none of "
                "'start MOMENT', 'end MOMENT', 'jitter SECONDSs', 'without DATES'."
            )
        name, value = (part for part in found.groups() if part is not None)
        options[name] = value
    return options


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSettings(f"{text!r} is no moment: write for example 2026-01-01T00:00:00Z.") from error
