"""Cron expressions: what they mean, their canonical form, and what is refused, with the place."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.rules.cron import parse
from holdfast.rules.days import LocalTimes


@pytest.mark.parametrize(
    ("text", "canonical", "elapsed"),
    [
        ("0 9 * * MON-FRI", "0 9 * * 1-5", False),
        ("  00  09  *  *  mon-fri ", "0 9 * * 1-5", False),
        ("*/15 * * * *", "*/15 * * * *", True),
        ("0-59 0 * * *", "0-59 0 * * *", False),
        ("0 */6 * * *", "0 */6 * * *", True),
        ("7,*/15 * * * *", "*/15,7 * * * *", True),
        ("*,7 * * * *", "* * * * *", True),
        ("10-50/20 5/8 * * *", "10,30,50 5,13,21 * * *", False),
        ("0 30 2 * * *", "30 2 * * *", False),
        ("15 30 2 * * *", "15 30 2 * * *", False),
        ("* 30 2 * * *", "* 30 2 * * *", True),
        ("0 0 * * 7", "0 0 * * 0", False),
        ("0 0 * * SAT-SUN", "0 0 * * 0,6", False),
        ("0 0 * * 5-7", "0 0 * * 0,5,6", False),
        ("0 0 1 JAN,jul ?", "0 0 1 1,7 *", False),
        ("0 0 L,LW,L-3,15w * *", "0 0 15W,L,L-3,LW * *", False),
        ("0 0 * * TUE#2,FRIL,5#L", "0 0 * * 2#2,5#L", False),
        ("@daily", "0 0 * * *", False),
        ("@Midnight", "0 0 * * *", False),
        ("@hourly", "0 * * * *", True),
        ("@weekly", "0 0 * * 0", False),
        ("@monthly", "0 0 1 * *", False),
        ("@yearly", "0 0 1 1 *", False),
        ("@annually", "0 0 1 1 *", False),
    ],
)
def test_canonical_form(text: str, canonical: str, elapsed: bool) -> None:
    found = parse(text)
    assert (found.text, found.elapsed) == (canonical, elapsed)
    assert parse(found.text) == found


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("0 25 * * *", "the hour at character 3, '25'", "not from 0 to 23"),
        ("60 * * * *", "the minute at character 1, '60'", "not from 0 to 59"),
        ("0 0 0 * *", "the day of month at character 5, '0'", "not from 1 to 31"),
        ("0 0 32 * *", "the day of month at character 5, '32'", "not from 1 to 31"),
        ("0 0 1 13 *", "the month at character 7, '13'", "not from 1 to 12"),
        ("0 0 * * 8", "the day of week at character 9, '8'", "not from 0 to 7"),
        ("0 0 * FOO *", "the month at character 7, 'FOO'", "neither a number nor a name (JAN to DEC)"),
        ("0,,1 * * * *", "the minute at character 3, ''", "no number"),
        ("1,2,x * * * *", "the minute at character 5, 'x'", "no number"),
        ("*/0 * * * *", "the minute at character 1, '*/0'", "a step that is not a number from 1 to 59"),
        ("*/x * * * *", "the minute at character 1, '*/x'", "a step"),
        ("5-1 * * * *", "the minute at character 1, '5-1'", "write 5-59,0-1"),
        ("? * * * *", "the minute at character 1, '?'", "not understood"),
        ("*5 * * * *", "the minute at character 1, '*5'", "not understood"),
        ("L * * * *", "the minute at character 1, 'L'", "no number"),
        ("0 0 0W * *", "the day of month at character 5, '0W'", "not from 1 to 31"),
        ("0 0 L-31 * *", "the day of month at character 5, 'L-31'", "more than 30"),
        ("0 0 * * 1#6", "the day of week at character 9, '1#6'", "from 1 to 5"),
        ("0 0 * * #2", "the day of week at character 9, '#2'", "neither"),
        ("-1 * * * *", "the minute at character 1, '-1'", "no number"),
        ("1.5 * * * *", "the minute at character 1, '1.5'", "no number"),
        ("٣ * * * *", "the minute at character 1, '٣'", "no number"),
        ("0 1 * *", "it has 4 fields", "needs 5"),
        ("", "it has 0 fields", "needs 5"),
        ("0 0 0 1 1 * 2026", "it has 7 fields", "or 6"),
        ("@reboot", "there is no '@reboot'", "@daily"),
        ("@every 5m", "there is no '@every 5m'", "every(minutes=5)"),
        ("0 0 30 2 *", "no year has such a day", "day of month 30, month 2"),
        ("0 0 0 30 2 *", "no year has such a day", "day of month 30, month 2"),
        ("0 0 31 4,6,9,11 *", "no year has such a day", "day of month 31"),
        ("0 0 L-30 2 *", "no year has such a day", "month 2"),
    ],
)
def test_what_is_refused_and_where(text: str, where: str, why: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse(text)
    assert where in str(caught.value)
    assert why in str(caught.value)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="must be text"):
        parse(5)


# --- What it means: beside a matcher that looks at each day ---------------------------------------------------------

Day = Callable[[date], bool]


def last_of(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def nearest(day: date, wanted: int) -> bool:
    """Whether it is the Monday to Friday nearest to that day of its month."""
    if wanted > last_of(day) or day.weekday() > 4:
        return False
    target = day.replace(day=wanted)
    choices = [
        day.replace(day=other) for other in range(1, last_of(day) + 1) if day.replace(day=other).weekday() < 5
    ]
    return min(choices, key=lambda each: (abs(each - target), each > target)) == day


MONTH_DAYS: dict[str, Day] = {
    "*": lambda day: True,
    "*/2": lambda day: day.day % 2 == 1,
    "1": lambda day: day.day == 1,
    "15,30": lambda day: day.day in (15, 30),
    "28-31": lambda day: day.day >= 28,
    "L": lambda day: day.day == last_of(day),
    "L-2": lambda day: day.day == last_of(day) - 2,
    "LW": lambda day: nearest(day, last_of(day)),
    "1W": lambda day: nearest(day, 1),
    "15W": lambda day: nearest(day, 15),
    "31W": lambda day: nearest(day, 31),
}
WEEK_DAYS: dict[str, Day] = {
    "*": lambda day: True,
    "*/2": lambda day: day.isoweekday() % 7 in (0, 2, 4, 6),
    "MON": lambda day: day.weekday() == 0,
    "1-5": lambda day: day.weekday() < 5,
    "SAT,SUN": lambda day: day.weekday() > 4,
    "TUE#2": lambda day: day.weekday() == 1 and 8 <= day.day <= 14,
    "MON#5": lambda day: day.weekday() == 0 and day.day > 28,
    "FRIL": lambda day: day.weekday() == 4 and day.day > last_of(day) - 7,
    "0#1,3#L": lambda day: (
        (day.weekday() == 6 and day.day < 8) or (day.weekday() == 2 and day.day > last_of(day) - 7)
    ),
}
MONTHS = {"*": range(1, 13), "2": (2,), "JAN-MAR,12": (1, 2, 3, 12), "*/4": (1, 5, 9)}
LOW, HIGH = date(2023, 12, 1), date(2025, 3, 2)  # with a leap year
DAYS = [LOW + timedelta(days=n) for n in range((HIGH - LOW).days)]
EPOCH = date(1970, 1, 1)


@pytest.mark.parametrize("month_day", MONTH_DAYS)
@pytest.mark.parametrize("week_day", WEEK_DAYS)
def test_days(month_day: str, week_day: str) -> None:
    first, second = MONTH_DAYS[month_day], WEEK_DAYS[week_day]
    both = month_day[0] == "*" or week_day[0] == "*"
    matching = [
        day for day in DAYS if ((first(day) and second(day)) if both else (first(day) or second(day)))
    ]
    for month, numbers in MONTHS.items():
        if (month_day, month) == ("31W", "2") and both:
            continue  # refused: there is no 31 February
        wanted = [day for day in matching if day.month in numbers]
        times = LocalTimes(parse(f"0 0 {month_day} {month} {week_day}").days, (0,), (0,))
        assert times.count(*bounds(LOW, HIGH - timedelta(days=1))) == len(wanted)
        assert [day for day in DAYS if times.count(*bounds(day, day))] == wanted
        assert walked(times) == wanted


def walked(times: LocalTimes) -> list[date]:
    found, at = [], times.ceil((LOW - EPOCH).days * 86_400)
    while at is not None and at < (HIGH - EPOCH).days * 86_400:
        found.append(EPOCH + timedelta(seconds=at))
        at = times.ceil(at + 1)
    return found


def bounds(first: date, last: date) -> tuple[int, int]:
    return (first - EPOCH).days * 86_400, ((last - EPOCH).days + 1) * 86_400


numbers = st.sets(st.integers(0, 59), min_size=1, max_size=5).map(lambda values: tuple(sorted(values)))
hours = st.sets(st.integers(0, 23), min_size=1, max_size=4).map(lambda values: tuple(sorted(values)))


@settings(max_examples=150)
@given(
    hours,
    numbers,
    numbers,
    st.integers(0, 4 * 86_400),
    st.integers(0, 4 * 86_400),
    st.sets(st.integers(0, 3)),
)
def test_times_of_a_day(
    hour: tuple[int, ...],
    minute: tuple[int, ...],
    second: tuple[int, ...],
    low: int,
    high: int,
    out: set[int],
) -> None:
    times = LocalTimes(parse("0 0 * * *").days, hour, minute, second, frozenset(out))
    every = [
        day * 86_400 + h * 3600 + m * 60 + s
        for day in range(-1, 5)
        if day not in out
        for h in hour
        for m in minute
        for s in second
    ]
    assert times.ceil(low) == min(each for each in every if each >= low)
    assert times.floor(low) == max(each for each in every if each <= low)
    assert times.count(low, high) == len([each for each in every if low <= each < high])
    assert times.ceil(low, high) == min((each for each in every if low <= each < high), default=None)
    assert times.floor(high, low) == max((each for each in every if low <= each <= high), default=None)


def test_a_day_that_comes_once_in_decades_is_found() -> None:
    times = LocalTimes(parse("0 0 * 2 MON#5").days, (0,), (0,))
    found = times.ceil(bounds(date(2025, 1, 1), date(2025, 1, 1))[0])
    assert found is not None
    assert datetime(1970, 1, 1) + timedelta(seconds=found) == datetime(2044, 2, 29)
