"""Rules in words, and what is said about clock changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.rules.patterns import Rule
from holdfast.rules.recurrence import cron, daily, every, monthly, parse, weekly, yearly
from holdfast.rules.timeline import Timeline
from holdfast.rules.wording import describe, upcoming
from holdfast.schedules import zones

BERLIN = "Europe/Berlin"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (every(minutes=15), "every 15 minutes"),
        (every(days=1), "every day"),
        (every(seconds=90, anchor=START), "every 90 seconds, counted from 2026-01-01 00:00 UTC"),
        (every(hours=5, start=START), "every 5 hours, counted from 2026-01-01 00:00 UTC"),
        (daily("02:30", zone=BERLIN), "every day at 02:30, Europe/Berlin"),
        (
            daily("02:30", start=START, end=START, jitter=60, without=["2026-12-24"]),
            "every day at 02:30, UTC, from 2026-01-01 00:00 UTC, until 2026-01-01 00:00 UTC, "
            "each up to 1 minute later, but not on 2026-12-24",
        ),
        (weekly("MON,THU", "09:00"), "every Monday and Thursday at 09:00, UTC"),
        (weekly("MON-FRI", "09:00"), "every Monday to Friday at 09:00, UTC"),
        (monthly(3, "09:00"), "on day 3 of every month at 09:00, UTC"),
        (monthly(31, "09:00"), "on day 31 (the last day of shorter ones) of every month at 09:00, UTC"),
        (
            monthly(30, "09:00", short="skip"),
            "on day 30 (shorter ones are left out) of every month at 09:00, UTC",
        ),
        (monthly("L", "09:00"), "on the last day of every month at 09:00, UTC"),
        (monthly("L-2", "09:00"), "on the day 2 before the last of every month at 09:00, UTC"),
        (monthly("LW", "09:00"), "on the last Monday to Friday of every month at 09:00, UTC"),
        (monthly("15W", "09:00"), "on the Monday to Friday nearest to day 15 of every month at 09:00, UTC"),
        (monthly("TUE#2", "09:00"), "on the second Tuesday of every month at 09:00, UTC"),
        (yearly("03-14", "09:00"), "every year on 14 March at 09:00, UTC"),
        (yearly("02-29", "09:00"), "every year on 29 February (28 February in other years) at 09:00, UTC"),
        (
            yearly("02-29", "09:00", feb29="skip"),
            "every year on 29 February (in leap years only) at 09:00, UTC",
        ),
        (cron("0 9 * * MON-FRI"), "at 09:00 on Monday to Friday, UTC"),
        (
            cron("0,30 9,18 1,15 * *"),
            "at 09:00, 09:30, 18:00 and 18:30 on day 1 and day 15 of the month, UTC",
        ),
        (cron("15 30 9 * * *"), "at 09:30:15 every day, UTC"),
        (cron("* * * * *"), "every minute, UTC"),
        (cron("*/15 * * * *"), "every 15 minutes, UTC"),
        (cron("*/5 * * * * *"), "every 5 seconds, UTC"),
        (cron("0 * * * *"), "at minute 0 of every hour, UTC"),
        (cron("*/10 9-17 * * *"), "every 10 minutes of hours 9 to 17, UTC"),
        (cron("0 9 1 * MON"), "at 09:00 on day 1 of the month or on Monday, UTC"),
        (cron("0 9 * 1-3 TUE#2"), "at 09:00 on the second Tuesday of the month in January to March, UTC"),
        (cron("0,15,30,45 8-12 * * *"), "at minutes 0, 15, 30 and 45 of hours 8 to 12 every day, UTC"),
    ],
)
def test_in_words(rule: Rule, words: str) -> None:
    assert describe(rule) == words


@pytest.mark.parametrize(
    ("rule", "after", "local", "note"),
    [
        (
            "daily 02:30 in Europe/Berlin",
            "2026-03-28T12:00",
            "2026-03-29 03:00",
            "02:30 does not exist on 29 March: the clock goes from 02:00 to 03:00, so it runs at 03:00",
        ),
        (
            "cron 0,30 2 * * * in Europe/Berlin",
            "2026-03-28T12:00",
            "2026-03-29 03:00",
            "02:00 and 02:30 do not exist on 29 March: the clock goes from 02:00 to 03:00, so it runs at 03:00",
        ),
        (
            "cron 0,15,30,45 2,3 * * * in Europe/Berlin",
            "2026-03-28T12:00",
            "2026-03-29 03:00",
            "02:00 to 02:45 do not exist on 29 March: the clock goes from 02:00 to 03:00, so it runs at 03:00",
        ),
        (
            "daily 02:30 in Europe/Berlin",
            "2026-10-24T12:00",
            "2026-10-25 02:30",
            "02:30 comes twice on 25 October: the clock goes back from 03:00 to 02:00, and it runs at the first only",
        ),
        (
            "cron 0 * * * * in Europe/Berlin",
            "2026-10-24T23:30",
            "2026-10-25 02:00",
            "02:00 comes twice on 25 October: the clock goes back from 03:00 to 02:00, and it runs at both",
        ),
        (
            "cron 0 * * * * in Europe/Berlin",
            "2026-10-25T00:30",
            "2026-10-25 02:00",
            "this is the second 02:00 on 25 October: the clock has gone back from 03:00 to 02:00",
        ),
        (
            "daily 09:00 in Pacific/Apia",
            "2011-12-29T22:00",
            "2011-12-31 00:00",
            "09:00 does not exist on 30 December: the clock goes from 00:00 on 30 December to 00:00 on 31 December, "
            "so it runs at 00:00 on 31 December",
        ),
        ("daily 03:00 in Europe/Berlin", "2026-03-28T12:00", "2026-03-29 03:00", None),
        ("daily 03:00 in Europe/Berlin", "2026-10-24T12:00", "2026-10-25 03:00", None),
        ("cron 0 * * * * in Europe/Berlin", "2026-10-25T01:30", "2026-10-25 03:00", None),
        ("cron 0 * * * * in Europe/Berlin", "2026-03-29T00:30", "2026-03-29 03:00", None),
        ("every 3600s", "2026-10-25T00:30", "2026-10-25 01:00", None),
    ],
)
def test_notes_on_clock_changes(rule: str, after: str, local: str, note: str | None) -> None:
    parsed = parse(rule)
    timeline = Timeline(parsed, zones.zone(parsed.zone))
    (found,) = upcoming(timeline, datetime.fromisoformat(after).replace(tzinfo=UTC), 1)
    assert (f"{found.local:%Y-%m-%d %H:%M}", found.note) == (local, note)


def test_the_next_few_follow_each_other_and_end_with_the_rule() -> None:
    rule = daily("02:30", zone=BERLIN, end=datetime(2026, 3, 30, 12, tzinfo=UTC))
    found = upcoming(Timeline(rule, zones.zone(BERLIN)), datetime(2026, 3, 28, tzinfo=UTC), 5)
    assert [each.occurrence.key for each in found] == ["2026-03-28", "2026-03-29", "2026-03-30"]
    assert [each.note is None for each in found] == [True, False, True]
