"""When an outage begins and ends, as tables; how late a message is, in the words of a log."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.outage import Began, Due, Ended, Outage, WentOn
from holdfast.rules.outage import Seen, absent, judge, lateness, more_than, why_late

NOON = datetime(2026, 3, 15, 12, 0, tzinfo=UTC)


def ago(**length: float) -> datetime:
    return NOON - timedelta(**length)


def decided(open: Outage | None, seen: Seen, now: datetime = NOON, calm: float = 60.0, **more: Any) -> Any:
    rule = {"allowed": 10.0, "late": 300.0, "after": 60.0, **more}
    return judge(open, seen, calm=calm, now=now, **rule)


OPEN = Outage(1, "absent", ago(hours=1), NOON, ago(hours=2), NOON, ago(hours=1))
QUIET = Seen((), 0, None, True)


@pytest.mark.parametrize(
    ("since", "worked", "begins"),
    [
        (ago(hours=1), ago(hours=2), True),  # it fell due while nobody was there
        (ago(hours=2), ago(hours=1), True),  # it waited already when the last one went
        (ago(seconds=60), ago(hours=1), True),
        (ago(seconds=59), ago(hours=1), False),  # due just now
        (ago(hours=1), ago(seconds=59), False),  # somebody was there until just now
        (ago(hours=1), None, False),  # nobody was ever there
    ],
)
def test_nobody_worked_while_something_was_due(
    since: datetime, worked: datetime | None, begins: bool
) -> None:
    began = absent([Due("q", since, worked)], 60.0, NOON, is_back=True)
    assert (began is not None) == begins
    if began is not None and worked is not None:
        assert began == Began("absent", max(since, worked), worked, NOON, since)


def test_of_several_queues_the_longest_absence_counts_and_others_do_not() -> None:
    due = [
        Due("billing", ago(hours=3), ago(hours=4)),
        Due("mail", ago(hours=9), ago(seconds=5)),  # somebody serves it
        Due("sms", ago(hours=2), ago(hours=5)),
        Due("new", ago(hours=20), None),
    ]
    assert absent(due, 60.0, NOON, is_back=False) == Began(
        "absent", ago(hours=3), ago(hours=5), None, ago(hours=3)
    )


@pytest.mark.covers("B53")
@pytest.mark.parametrize(("late", "begins"), [(0, False), (10, False), (11, True)])
def test_more_than_ten_that_are_late_are_an_outage(late: int, begins: bool) -> None:
    seen = Seen((), late, ago(minutes=20) if late else None, True)
    found = decided(None, seen)
    assert found == (Began("late", ago(minutes=15), None, None, ago(minutes=20)) if begins else None)


def test_nobody_is_there_and_somebody_from_outside_looks() -> None:
    due = [Due("q", ago(hours=1), ago(hours=2))]
    began = decided(None, Seen(due, 50, ago(hours=1), False))
    assert began == Began("absent", ago(hours=1), ago(hours=2), None, ago(hours=1))
    open = replace(OPEN, back_at=None)
    assert decided(open, Seen(due, 50, ago(hours=1), False)) is None  # it goes on
    assert decided(open, Seen((), 0, None, False)) is None  # nothing is due, but nobody is there either
    assert decided(open, Seen(due, 0, None, True)) == WentOn(open, NOON, None)  # somebody is back


def test_it_is_over_when_it_was_calm_for_long_enough() -> None:
    busy = Seen([Due("q", ago(minutes=1), NOON)], 0, None, True)
    assert decided(OPEN, busy) is None  # something is left that fell due before somebody was back
    later = Seen([Due("q", NOON + timedelta(seconds=1), NOON)], 0, None, True)
    assert decided(OPEN, later) == WentOn(OPEN, NOON, NOON)  # what came since then does not count
    calm = replace(OPEN, calm_since=NOON)
    assert decided(calm, QUIET, NOON + timedelta(seconds=59)) is None
    assert decided(calm, QUIET, NOON + timedelta(seconds=60)) == Ended(calm, NOON + timedelta(seconds=60))
    assert decided(calm, busy) == WentOn(calm, NOON, None)  # the same outage
    assert decided(OPEN, QUIET, calm=0.0) == Ended(OPEN, NOON)  # whoever looks goes
    assert decided(OPEN, busy, calm=0.0) is None


@pytest.mark.parametrize(("late", "calm"), [(0, True), (8, True), (9, False), (11, False)])
def test_few_must_be_late_before_it_is_calm(late: int, calm: bool) -> None:
    open = replace(OPEN, cause="late", back_at=None)
    found = decided(open, Seen((), late, ago(minutes=6), True))
    assert (found == WentOn(open, None, NOON)) == calm
    assert decided(open, Seen((), 0, None, False)) is None  # nobody is there: nothing is known to be calm


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000) | st.none()), max_size=5),
    st.integers(1, 1000),
)
def test_an_absence_has_lasted_as_long_as_it_must(pairs: list[tuple[int, int | None]], after: int) -> None:
    due = [
        Due(str(n), ago(seconds=since), None if worked is None else ago(seconds=worked))
        for n, (since, worked) in enumerate(pairs)
    ]
    began = absent(due, after, NOON, is_back=True)
    long = [pair for pair in pairs if pair[1] is not None and min(pair[0], pair[1]) >= after]
    assert (began is not None) == bool(long)
    if began is not None:
        assert (NOON - began.began_at).total_seconds() == max(
            min(since, worked or 0) for since, worked in long
        )
        assert began.down_since is not None
        assert began.down_since <= began.began_at >= began.oldest_at


@pytest.mark.covers("B20", "B22")
@pytest.mark.parametrize(
    ("seconds", "minutes", "hours"),
    [
        (0, 0, 0.0),
        (59.9, 0, 0.0),
        (60, 1, 0.0),
        (180, 3, 0.1),
        (3600, 60, 1.0),
        (68_405, 1140, 19.0),
        (-5, 0, 0.0),
    ],
)
def test_lateness_is_whole_minutes_and_hours_with_one_decimal(
    seconds: float, minutes: int, hours: float
) -> None:
    assert lateness(seconds) == (minutes, hours)


def test_why_a_message_is_late() -> None:
    down = (ago(hours=2), ago(hours=1))
    assert why_late(ago(hours=1.5), down) == "recovery from downtime"
    assert why_late(ago(minutes=30), down) == "it waited behind others or was held back"
    assert why_late(ago(hours=1.5), None) == "it waited behind others or was held back"


@pytest.mark.parametrize(("allowed", "least"), [(10, 11), (10.5, 11), (0.5, 1), (float("inf"), float("inf"))])
def test_more_than(allowed: float, least: float) -> None:
    assert more_than(allowed) == least
