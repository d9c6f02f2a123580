"""Recurrence rules: how they are written and stored, and when they occur."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.rules.patterns import KeyKind, Rule
from holdfast.rules.recurrence import cron, daily, every, monthly, parse, weekly, yearly
from holdfast.rules.timeline import Occurrence, Timeline, occurrence_id
from holdfast.rules.zones import Zone, build
from holdfast.schedules import zones
from tests.rules.purity import trapped

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def on(rule: Rule, identity: str = "one") -> Timeline:
    return Timeline(rule, zones.zone(rule.zone), identity)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def keys(found: tuple[Occurrence, ...]) -> list[str]:
    return [each.key for each in found]


# --- As users write them --------------------------------------------------------------------------------------------

WRITTEN = [
    (cron("0 9 * * MON-FRI", zone=NEW_YORK), "cron 0 9 * * 1-5 in America/New_York"),
    (every(minutes=15), "every 900s"),
    (every(hours=5, start=NOW), "every 18000s from 2026-03-14T12:00:00Z; start 2026-03-14T12:00:00Z"),
    (every(weeks=1, days=1, anchor=NOW), "every 691200s from 2026-03-14T12:00:00Z"),
    (daily("02:30", zone=BERLIN), "daily 02:30 in Europe/Berlin"),
    (daily(clock(2, 30, 15)), "daily 02:30:15 in UTC"),
    (weekly("MON,THU", "09:00", zone=BERLIN), "weekly MON,THU 09:00 in Europe/Berlin"),
    (weekly(["sun", "MON"], "09:00"), "weekly MON,SUN 09:00 in UTC"),
    (weekly("MON-FRI", "09:00"), "weekly MON,TUE,WED,THU,FRI 09:00 in UTC"),
    (monthly(1, "09:00"), "monthly 1 09:00 in UTC"),
    (monthly(31, "09:00"), "monthly 31 09:00 in UTC"),
    (monthly("31", "09:00", short="skip"), "monthly 31 09:00 skip in UTC"),
    (monthly(1, "09:00", short="skip"), "monthly 1 09:00 in UTC"),
    (monthly("lw", "09:00"), "monthly LW 09:00 in UTC"),
    (monthly("FRIL", "09:00"), "monthly FRI#L 09:00 in UTC"),
    (yearly(date(1990, 3, 14), "09:00", zone=BERLIN), "yearly 03-14 09:00 in Europe/Berlin"),
    (yearly("02-29", "09:00", feb29="mar1"), "yearly 02-29 09:00 mar1 in UTC"),
    (yearly("2000-02-29", "09:00"), "yearly 02-29 09:00 feb28 in UTC"),
    (yearly("03-14", "09:00", feb29="skip"), "yearly 03-14 09:00 in UTC"),
    (
        daily("09:00", jitter=60, end=NOW, without=["2026-12-25", date(2026, 12, 24)]),
        "daily 09:00 in UTC; end 2026-03-14T12:00:00Z; jitter 60s; without 2026-12-24,2026-12-25",
    ),
]


@pytest.mark.parametrize(("rule", "text"), WRITTEN)
def test_the_stored_text(rule: Rule, text: str) -> None:
    assert rule.text == text
    assert parse(text) == rule


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: every(), "every() of 0 seconds"),
        (lambda: every(seconds=-5), "every(seconds=-5)"),
        (lambda: every(seconds=0.5), "every(seconds=0.5)"),  # type: ignore[arg-type]
        (lambda: every(minutes=True), "every(minutes=True)"),
        (lambda: every(days=400), "366 days"),
        (lambda: every(days=10**12), "366 days"),
        (lambda: daily("25:00"), "'25:00'"),
        (lambda: daily("9:00"), "write '09:00'"),
        (lambda: daily("24:00"), "23:59:59"),
        (lambda: daily(clock(9, tzinfo=UTC)), "the zone is given apart"),
        (lambda: daily(9), "write '09:00'"),  # type: ignore[arg-type]
        (lambda: daily("09:00", zone="Europe/../etc"), "name an IANA zone"),
        (lambda: daily("09:00", zone=""), "name an IANA zone"),
        (lambda: daily("09:00", zone=UTC), "name an IANA zone"),  # type: ignore[arg-type]
        (lambda: daily("09:00", jitter=-1), "jitter=-1"),
        (lambda: daily("09:00", jitter=1.5), "jitter=1.5"),  # type: ignore[arg-type]
        (lambda: daily("09:00", start=datetime(2026, 1, 1)), "with a time zone"),
        (lambda: daily("09:00", start=NOW, end=NOW - SECOND), "never runs"),
        (lambda: daily("09:00", start=datetime(1800, 1, 1, tzinfo=UTC)), "1900 to 2199"),
        (lambda: daily("09:00", without="2026-12-24"), "a list of dates"),
        (lambda: daily("09:00", without=["24.12."]), "'24.12.'"),
        (lambda: daily("09:00", without=["2026-02-30"]), "'2026-02-30'"),
        (lambda: daily("09:00", without=[NOW]), "give dates"),
        (
            lambda: daily("09:00", without=[date(2026, 1, 1) + timedelta(days=n) for n in range(401)]),
            "401 dates",
        ),
        (
            lambda: weekly("MON,FOO", "09:00"),
            "weekly rule 'MON,FOO' is refused: the day of week at character 5, 'FOO'",
        ),
        (lambda: weekly("1", "09:00"), "at character 1, '1'"),
        (lambda: weekly([], "09:00"), "name weekdays"),
        (lambda: weekly("MONL", "09:00"), "monthly('FRI#L'"),
        (lambda: monthly(0, "09:00"), "a number from 1 to 31"),
        (lambda: monthly("1,2", "09:00"), "one day"),
        (lambda: monthly("*", "09:00"), "one day"),
        (lambda: monthly("32", "09:00"), "not from 1 to 31"),
        (lambda: monthly(1, "09:00", short="no"), "short='no'"),  # type: ignore[arg-type]
        (lambda: yearly("02-30", "09:00"), "yearly('02-30')"),
        (lambda: yearly("13-01", "09:00"), "yearly('13-01')"),
        (lambda: yearly("02-29", "09:00", feb29="feb27"), "feb29='feb27'"),  # type: ignore[arg-type]
        (lambda: cron("0 25 * * *"), "at character 3"),
        (lambda: parse("hourly"), "it must begin with"),
        (lambda: parse("daily 09:00"), "name its zone"),
        (lambda: parse("daily 09:00 in UTC; twice"), "at character 21"),
        (lambda: parse("every 5s from 2026-99-01T00:00:00Z"), "is no moment"),
        (lambda: parse("yearly 03-14 09:00 mar1 in UTC"), "it must begin with"),
    ],
)
def test_rules_that_cannot_work_are_refused_at_the_call(make: Any, why: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        make()
    assert why in str(caught.value)


def test_a_rule_is_not_put_into_another_zone() -> None:
    with pytest.raises(InvalidSettings, match="give it the zone that it names"):
        Timeline(daily("09:00", zone=BERLIN), zones.zone(NEW_YORK))


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="with a time zone"):
        on(daily("09:00")).next(datetime(2026, 1, 1))


# --- When ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "after", "expected"),
    [
        (every(minutes=15), "2026-03-14T12:00", ["2026-03-14T12:15:00Z", "2026-03-14T12:30:00Z"]),
        (
            every(hours=5, start=at("2026-03-14T12:07")),
            "2026-01-01",
            ["2026-03-14T12:07:00Z", "2026-03-14T17:07:00Z"],
        ),
        (
            every(hours=12, without=["2026-03-15"]),
            "2026-03-14T12:00",
            ["2026-03-16T00:00:00Z", "2026-03-16T12:00:00Z"],
        ),
        (monthly(31, "09:00"), "2026-02-01", ["2026-02-28", "2026-03-31", "2026-04-30"]),
        (monthly(31, "09:00", short="skip"), "2026-02-01", ["2026-03-31", "2026-05-31", "2026-07-31"]),
        (monthly("LW", "09:00"), "2026-01-01", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        (monthly("TUE#2", "09:00"), "2026-01-01", ["2026-01-13", "2026-02-10"]),
        (weekly("MON,THU", "09:00"), "2026-03-14", ["2026-03-16", "2026-03-19", "2026-03-23"]),
        (daily("09:00", without=["2026-03-15"]), "2026-03-14T09:00", ["2026-03-16", "2026-03-17"]),
        (daily("09:00", end=at("2026-03-15T09:00")), "2026-03-14T09:00", ["2026-03-15"]),
        (daily("09:00", start=at("2026-03-15T09:00")), "2026-01-01", ["2026-03-15", "2026-03-16"]),
        (daily("09:00", start=at("2026-03-15T09:00:00.000001")), "2026-01-01", ["2026-03-16"]),
        (
            cron("0 9 1 * MON"),
            "2026-03-20",
            ["2026-03-23T09:00:00", "2026-03-30T09:00:00", "2026-04-01T09:00:00"],
        ),
        (cron("30 0 9 * * *"), "2026-03-20", ["2026-03-20T09:00:30", "2026-03-21T09:00:30"]),
        (cron("*/30 9 * * *"), "2026-03-20", ["2026-03-20T09:00:00Z", "2026-03-20T09:30:00Z"]),
        (yearly("02-29", "09:00"), "2026-03-01", ["2027-02-28", "2028-02-29", "2029-02-28"]),
        (yearly("02-29", "09:00", feb29="mar1"), "2026-03-02", ["2027-03-01", "2028-02-29", "2029-03-01"]),
        (yearly("02-29", "09:00", feb29="skip"), "2093-01-01", ["2096-02-29", "2104-02-29"]),
    ],
)
@pytest.mark.covers("X54")
def test_what_comes_next(rule: Rule, after: str, expected: list[str]) -> None:
    timeline, after_ = on(rule), at(after)
    found = timeline.occurrences(after_, after_ + timedelta(days=7400), len(expected))
    assert keys(found) == expected


@pytest.mark.parametrize(
    ("zone", "rule", "after", "moments"),
    [
        # Hazards 3 to 6 of clock changes, by name; the whole matrix is in test_clock_changes.py.
        (NEW_YORK, "daily 02:30", "2026-03-08T00:00", ["2026-03-08T07:00", "2026-03-09T06:30"]),
        (NEW_YORK, "daily 01:30", "2026-11-01T00:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
        (NEW_YORK, "cron 45 1 * * *", "2026-11-01T06:40", ["2026-11-02T06:45"]),  # asked in the second fold
        (
            NEW_YORK,
            "cron 0 * * * *",
            "2026-11-01T04:30",
            ["2026-11-01T05:00", "2026-11-01T06:00", "2026-11-01T07:00"],
        ),
        ("Australia/Lord_Howe", "daily 02:15", "2026-10-03T00:00", ["2026-10-03T15:30", "2026-10-04T15:15"]),
        ("Asia/Kathmandu", "daily 00:10", "1985-12-31T12:00", ["1985-12-31T18:30", "1986-01-01T18:25"]),
        ("Asia/Pyongyang", "daily 23:45", "2018-05-04T00:00", ["2018-05-04T15:00", "2018-05-05T14:45"]),
        ("America/Caracas", "daily 02:45", "2016-05-01T00:00", ["2016-05-01T07:00", "2016-05-02T06:45"]),
        ("America/St_Johns", "daily 00:30", "2006-04-01T12:00", ["2006-04-02T03:31", "2006-04-03T03:00"]),
        ("Africa/Cairo", "daily 00:00", "2026-04-23T00:00", ["2026-04-23T22:00", "2026-04-24T21:00"]),
        (
            "America/Santiago",
            "weekly SUN 00:00",
            "2026-09-05T00:00",
            ["2026-09-06T04:00", "2026-09-13T03:00"],
        ),
        ("America/Havana", "daily 00:00", "2026-03-07T12:00", ["2026-03-08T05:00", "2026-03-09T04:00"]),
        ("Asia/Beirut", "daily 00:00", "2026-03-28T00:00", ["2026-03-28T22:00", "2026-03-29T21:00"]),
        ("Pacific/Apia", "daily 09:00", "2011-12-29T20:00", ["2011-12-30T10:00", "2011-12-30T19:00"]),
        ("Pacific/Apia", "daily 00:00", "2011-12-29T20:00", ["2011-12-30T10:00", "2011-12-31T10:00"]),
        ("Pacific/Kwajalein", "daily 09:00", "1993-08-20T22:00", ["1993-08-21T12:00", "1993-08-21T21:00"]),
    ],
)
@pytest.mark.covers("X56")
def test_clock_changes_by_name(zone: str, rule: str, after: str, moments: list[str]) -> None:
    timeline = on(parse(f"{rule} in {zone}"))
    found = timeline.occurrences(at(after), at(after) + timedelta(days=9), len(moments))
    assert [f"{each.at:%Y-%m-%dT%H:%M}" for each in found] == moments
    assert len(set(keys(found))) == len(moments)


@pytest.mark.covers("X56")
def test_all_that_one_gap_leaves_out_is_one_occurrence_with_the_last_key() -> None:
    timeline = on(cron("0,30 2,3 * * *", zone=BERLIN))
    found = timeline.occurrences(at("2026-03-28T12:00"), at("2026-03-29T12:00"), 9)
    assert keys(found) == ["2026-03-29T03:00:00", "2026-03-29T03:30:00"]
    assert timeline.following("2026-03-29T02:00:00") == found[0]
    assert timeline.following(found[0].key) == found[1]
    assert timeline.count(at("2026-03-28T12:00"), at("2026-03-29T12:00")) == 2


def test_nothing_is_computed_before_1900_or_after_2199() -> None:
    timeline = on(daily("09:00"))
    assert timeline.next(at("2199-12-31T09:00")) is None
    assert timeline.previous(at("1900-01-01T09:00")) is None
    # Leap years.
    assert (
        timeline.count(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)) == 300 * 365 + 73
    )
    assert on(every(days=1)).next(at("2199-12-31T00:00")) is None


# --- Keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "key", "expected"),
    [
        (daily("09:00", zone=BERLIN), "2026-03-14", "2026-03-15"),
        (daily("09:00", zone=BERLIN), "2026-03-14T10:00:00", "2026-03-15"),
        (daily("09:00", zone=BERLIN), "2026-03-14T10:00:00Z", "2026-03-15"),
        (cron("0 9 * * *", zone=BERLIN), "2026-03-14", "2026-03-14T09:00:00"),
        (cron("0 9 * * *", zone=BERLIN), "2026-03-14T09:00:00", "2026-03-15T09:00:00"),
        (cron("0 9 * * *", zone=BERLIN), "2026-03-14T08:59:59Z", "2026-03-14T09:00:00"),
        (cron("0 9 * * *", zone=BERLIN), "2026-03-14T09:00:00Z", "2026-03-15T09:00:00"),
        (every(hours=1), "2026-03-14T09:00:00", "2026-03-14T09:00:00Z"),
        (every(hours=1), "2026-03-14T09:00:00Z", "2026-03-14T10:00:00Z"),
        (every(hours=1), "2026-03-14", "2026-03-14T00:00:00Z"),
    ],
)
@pytest.mark.covers("X54")
def test_the_next_key_is_greater_whatever_rule_came_before(rule: Rule, key: str, expected: str) -> None:
    found = on(rule).following(key)
    assert found is not None
    assert (found.key, found.key > key) == (expected, True)


@pytest.mark.parametrize("key", ["yesterday", "", "2026-02-30", "2026-01-01T25:00:00", "2026-01-01 09:00:00"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(InvalidSettings, match="is not the key of an occurrence"):
        on(daily("09:00")).following(key)


@pytest.mark.covers("X54")
def test_the_id_follows_from_incarnation_and_key_alone() -> None:
    one, other = UUID(int=1).bytes, UUID(int=2).bytes
    assert occurrence_id(one, "2026-03-14") == "488e3c81-b6b9-50a7-b24a-bf98fab7046c"
    assert occurrence_id(one, "2026-03-14") == occurrence_id(one, "2026-03-14")
    assert (
        len({occurrence_id(each, key) for each in (one, other) for key in ("2026-03-14", "2026-03-15")}) == 4
    )


@given(incarnation=st.uuids(), key=st.text(max_size=30))
def test_the_id_is_the_uuid_of_version_5(incarnation: UUID, key: str) -> None:
    assert occurrence_id(incarnation.bytes, key) == str(uuid5(incarnation, key))


def test_what_names_an_occurrence() -> None:
    assert daily("09:00").key_kind is KeyKind.DATE
    assert cron("0 9 * * *").key_kind is KeyKind.LOCAL
    assert cron("0 * * * *").key_kind is KeyKind.INSTANT
    assert every(days=1).key_kind is KeyKind.INSTANT


# --- Jitter --------------------------------------------------------------------------------------------------------


def test_jitter_is_the_same_each_time_and_differs_between_schedules() -> None:
    rule = daily("09:00", zone=BERLIN, jitter=3600)
    one = on(rule).occurrences(NOW, NOW + timedelta(days=30), 30)
    assert on(rule).occurrences(NOW, NOW + timedelta(days=30), 30) == one
    assert [on(rule).following(each.key) for each in one[:-1]] == list(one[1:])
    other = on(rule, "another").occurrences(NOW, NOW + timedelta(days=30), 30)
    assert keys(other) == keys(one)
    assert len({each.due - each.at for each in (*one, *other)}) > 50
    spread = [(each.due - each.at).total_seconds() for each in one]
    assert min(spread) < 900 < 2700 < max(spread) < 3600


@settings(max_examples=60)
@given(st.integers(1, 100_000), st.sampled_from(["*/7 * * * *", "0,1 9 * * *", "0 2,3 * * *", "* * * * *"]))
def test_jitter_never_reaches_the_next_one(jitter: int, text: str) -> None:
    timeline = on(cron(text, zone=BERLIN, jitter=jitter))
    found = timeline.occurrences(at("2026-03-28T23:00"), at("2026-03-31T23:00"), 200)
    for one, two in pairwise(found):
        assert one.at <= one.due < two.at
        assert one.due < one.at + timedelta(seconds=jitter)


# --- Properties ----------------------------------------------------------------------------------------------------

times = st.times().map(lambda each: each.replace(microsecond=0))
weekdays = st.sets(st.sampled_from(["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]), min_size=1)
month_days = st.one_of(
    st.integers(1, 31), st.sampled_from(["L", "L-3", "LW", "15W", "31W", "TUE#2", "FRI#L", "MON#5"])
)
fields = {
    "second": st.sampled_from(["0", "30", "*/20", "5,59"]),
    "minute": st.sampled_from(["0", "*", "*/15", "0,30", "5-55/10", "59"]),
    "hour": st.sampled_from(["*", "0", "2", "1-3", "*/6", "0-23", "23"]),
    "day": st.sampled_from(["*", "1", "15,30", "L", "LW", "*/2", "28-31"]),
    "month": st.sampled_from(["*", "3,10", "2", "*/3"]),
    "weekday": st.sampled_from(["*", "SUN", "MON-FRI", "SUN#1", "SATL"]),
}
crons = st.tuples(*fields.values()).map(" ".join)
bounds = st.none() | st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))
options = st.fixed_dictionaries(
    {
        "start": bounds,
        "end": bounds,
        "jitter": st.sampled_from([0, 0, 5, 4000]),
        "without": st.lists(st.dates(date(2025, 10, 20), date(2026, 4, 10)), max_size=8),
    }
)
ZONES = ("UTC", BERLIN, NEW_YORK, "Australia/Lord_Howe", "Africa/Cairo", "Asia/Gaza", "America/Santiago")
zone_names = st.sampled_from((*ZONES, "Africa/Casablanca"))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    given_, zone = draw(options), draw(zone_names)
    if given_["start"] and given_["end"] and given_["end"] < given_["start"]:
        given_["start"], given_["end"] = given_["end"], given_["start"]
    choice = draw(st.integers(0, 5))
    if choice == 0:
        return every(seconds=draw(st.integers(1, 400_000)), anchor=draw(bounds), **given_)
    if choice == 1:
        return daily(draw(times), zone=zone, **given_)
    if choice == 2:
        return weekly(sorted(draw(weekdays)), draw(times), zone=zone, **given_)
    if choice == 3:
        return monthly(
            draw(month_days), draw(times), zone=zone, short=draw(st.sampled_from(["last", "skip"])), **given_
        )
    if choice == 4:
        born, feb29 = draw(st.dates()), draw(st.sampled_from(["feb28", "mar1", "skip"]))
        return yearly(born, draw(times), zone=zone, feb29=feb29, **given_)
    return cron(draw(crons), zone=zone, **given_)


moments = st.datetimes(datetime(2025, 10, 20), datetime(2026, 4, 10), timezones=st.just(UTC))


@settings(max_examples=300)
@given(rules())
def test_the_text_comes_back(rule: Rule) -> None:
    assert parse(rule.text) == rule
    assert parse(rule.text).text == rule.text


@settings(max_examples=400)
@given(rules(), moments)
@example(cron("45 1 * * *", zone=NEW_YORK), at("2026-11-01T06:40"))
def test_next_is_later_and_previous_leads_back(rule: Rule, moment: datetime) -> None:
    timeline = on(rule)
    found, before = timeline.next(moment), timeline.previous(moment)
    assert found is None or found.due >= found.at > moment
    assert before is None or before.at < moment
    if found is not None:
        assert timeline.next(found.at - SECOND) == found
        assert timeline.previous(found.at + SECOND) == found
        assert timeline.from_key(found.key) == found
        back = timeline.previous(found.at)
        assert back is None or back.at <= moment
    if before is not None:
        assert timeline.next(before.at - SECOND) == before
        assert timeline.following(before.key) == timeline.next(before.at)
        assert found is None or before.key < found.key


@settings(max_examples=300)
@given(rules(), moments, st.timedeltas(timedelta(0), timedelta(days=30)))
def test_count_is_what_is_enumerated(rule: Rule, after: datetime, length: timedelta) -> None:
    timeline, until = on(rule), after + length
    number = timeline.count(after, until)
    assume(number < 1500)
    found = timeline.occurrences(after, until, 2000)
    assert len(found) == number
    assert keys(found) == sorted(set(keys(found)))
    assert [each.at for each in found] == sorted({each.at for each in found})
    assert all(after < each.at <= until for each in found)
    backwards = []
    one = timeline.previous(until + timedelta(microseconds=1))
    while one is not None and one.at > after:
        backwards.append(one)
        one = timeline.previous(one.at)
    assert backwards[::-1] == list(found)


@settings(max_examples=100)
@given(
    rules(),
    st.lists(st.tuples(st.integers(600, 200_000), st.integers(-40_000, 40_000)), max_size=6),
    st.data(),
)
def test_whatever_the_clock_does(rule: Rule, steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """A zone whose clock is set by any amount, several times a day."""
    begin = 1_770_000_000
    changes, moment = [], begin
    for length, offset in steps:
        moment += length
        changes.append((moment, offset))
    zone = build(rule.zone, 0, changes)
    timeline = Timeline(rule, zone)
    after = datetime.fromtimestamp(data.draw(st.integers(begin - 90_000, moment + 90_000)), UTC)
    found = timeline.next(after)
    assert found is None or found.at > after
    until = after + timedelta(hours=30)
    number = timeline.count(after, until)
    assume(number < 1500)
    walked = timeline.occurrences(after, until, 2000)
    assert len(walked) == number
    assert keys(walked) == sorted(set(keys(walked)))


# --- New zone data ---------------------------------------------------------------------------------------------------


def moved(zone: Zone, after: int, by: int) -> Zone:
    """The same zone in a later release of the data: from a moment on, clocks are set by so much more."""
    changes = list(zip(zone.starts[1:], zone.offsets[1:], strict=True))
    return build(
        zone.name,
        zone.offsets[0],
        [each for each in changes if each[0] <= after] + [(after, zone.local(after) - after + by)],
    )


@pytest.mark.covers("X54")
def test_an_occurrence_keeps_its_key_when_zone_data_changes() -> None:
    rule = daily("09:00", zone=BERLIN)
    old = zones.zone(BERLIN)
    new = moved(old, round(at("2026-06-01").timestamp()), 3600)
    one, two = (Timeline(rule, zone).from_key("2026-07-01") for zone in (old, new))
    assert one is not None
    assert two is not None
    assert (one.key, two.key) == ("2026-07-01", "2026-07-01")
    assert two.at == one.at - timedelta(hours=1)


# --- Cost ------------------------------------------------------------------------------------------------------------


DEAR = [
    every(seconds=5),
    cron("*/5 * * * * *", zone="Africa/Casablanca"),
    cron("*/15 * * * *", zone=BERLIN),
    cron("0 9 * * MON-FRI", zone=NEW_YORK),
    cron("0 0 LW * *", zone="Africa/Casablanca"),
    cron("* * 29 2 *", zone=BERLIN),
    cron("0 0 * 2 MON#5", zone=BERLIN),
    cron("* * * 2 MON#5", zone=BERLIN),
    daily("02:30", zone=BERLIN),
    monthly("15W", "09:00", zone=BERLIN),
    yearly("02-29", "09:00", zone=BERLIN, feb29="skip"),
    replace(
        daily("02:30", zone=BERLIN),
        jitter=60,
        without=tuple(date(2026, 4, 1) + timedelta(days=n) for n in range(400)),
    ),
]


@pytest.mark.alone
@pytest.mark.parametrize("rule", DEAR, ids=lambda rule: rule.text[:40])
def test_a_millisecond_over_ten_years(rule: Rule) -> None:
    timeline, end = on(rule), NOW + timedelta(days=3653)
    questions = {
        "next": lambda: timeline.next(NOW),
        "previous": lambda: timeline.previous(NOW),
        "count": lambda: timeline.count(NOW, end),
        "occurrences": lambda: timeline.occurrences(NOW, end, 10),
    }
    for question in questions.values():
        took = []
        for _ in range(15):
            began = time.perf_counter()
            question()
            took.append(time.perf_counter() - began)
        best = min(took)
        assert best < 0.001


def test_rules_call_nothing_that_is_not_pure() -> None:
    for rule in DEAR:
        zone = zones.zone(rule.zone)
        with trapped():
            timeline = Timeline(parse(rule.text), zone, "one")
            timeline.occurrences(NOW, NOW + timedelta(days=400), 3)
            timeline.previous(NOW)
            timeline.count(NOW, NOW + timedelta(days=400))


def test_an_option_that_no_rule_has_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="zon is refused"):
        daily("02:30", zon="Europe/Berlin")  # type: ignore[call-arg]
    with pytest.raises(InvalidSettings, match="elapsed time"):
        every(minutes=5, zone="Europe/Berlin")  # type: ignore[call-arg]
