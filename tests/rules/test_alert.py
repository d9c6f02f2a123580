"""When an alert is raised and when it is over, as a table and as a walk."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.alert import AlertChanged, AlertOver, AlertRaised, Episode, Measure, Verdict
from holdfast.rules.alert import judge, length, pause

NOON = datetime(2040, 5, 1, 12, 0, tzinfo=UTC)
LIMITS = {"dead_letters": 100.0, "breaker_open": 1.0}
RAISED = Episode("dead_letters", "", NOON, 120.0, 130.0, None, 7, 3)
CALM = replace(RAISED, calm_since=NOON)


def verdicts(
    value: float | None, *episodes: Episode, seconds: float = 0.0, name: str = "dead_letters"
) -> list[Verdict]:
    measured = {name: [] if value is None else [Measure("", value, "told", {"n": 1})]}
    return judge(episodes, measured, LIMITS, 60.0, NOON + timedelta(seconds=seconds))


@pytest.mark.covers("X20", "V35")
@pytest.mark.parametrize("value", [0.0, 99.0, None])
def test_below_the_threshold_nothing_happens(value: float | None) -> None:
    assert verdicts(value) == []


@pytest.mark.covers("X20", "V35")
@pytest.mark.parametrize("value", [100.0, 5000.0])
def test_at_the_threshold_an_episode_begins(value: float) -> None:
    (raised,) = verdicts(value)
    assert isinstance(raised, AlertRaised)
    assert raised == AlertRaised(Episode("dead_letters", "", NOON, value, value), 100.0, "told", {"n": 1})


@pytest.mark.covers("X20")
@pytest.mark.parametrize("value", [80.0, 100.0, 130.0])
def test_an_episode_is_told_once(value: float) -> None:
    assert verdicts(value, RAISED) == []


def test_what_is_higher_than_ever_is_kept_but_not_told() -> None:
    assert verdicts(131.0, RAISED) == [AlertChanged(RAISED, replace(RAISED, value=131.0, peak=131.0))]


@pytest.mark.parametrize("value", [79.0, None])
def test_below_the_lower_level_it_is_calm_and_nothing_is_told(value: float | None) -> None:
    (calm,) = verdicts(value, RAISED, seconds=5.0)
    assert isinstance(calm, AlertChanged)
    assert calm.after == replace(RAISED, value=value or 0.0, calm_since=NOON + timedelta(seconds=5))


@pytest.mark.covers("X20")
def test_the_all_clear_comes_when_it_was_calm_for_long_enough() -> None:
    assert verdicts(79.0, CALM, seconds=59.0) == []
    (over,) = verdicts(79.0, CALM, seconds=60.0)
    assert over == AlertOver(
        CALM, 79.0, 100.0, "Over: dead_letters, after 1.0 min; the highest value was 130."
    )


def test_who_comes_back_before_the_all_clear_is_the_same_episode() -> None:
    assert verdicts(80.0, CALM, seconds=600.0) == [
        AlertChanged(CALM, replace(CALM, value=80.0, calm_since=None))
    ]


def test_what_was_not_measured_stays_as_it_is() -> None:
    assert judge([RAISED, CALM], {}, LIMITS, 60.0, NOON + timedelta(days=1)) == []
    assert verdicts(500.0, name="unheard_of") == []


def test_an_alert_that_was_turned_off_ends() -> None:
    measured = {"dead_letters": [Measure("", 500.0, "told")]}
    off = {"dead_letters": float("inf")}
    assert judge([], measured, off, 60.0, NOON) == []
    (over,) = judge([CALM], measured, off, 60.0, NOON + timedelta(seconds=60))
    assert isinstance(over, AlertOver)


def test_subjects_are_apart() -> None:
    measured = {"breaker_open": [Measure("llm", 5.0, "open"), Measure("stt", 0.5, "open")]}
    raised = Episode("breaker_open", "smtp", NOON, 9.0, 9.0, NOON, 1, 1)
    found = judge([raised], measured, LIMITS, 60.0, NOON + timedelta(seconds=60))
    assert [
        (type(each).__name__, each.episode.subject) for each in found if not isinstance(each, AlertChanged)
    ] == [
        ("AlertRaised", "llm"),
        ("AlertOver", "smtp"),
    ]


@pytest.mark.covers("X20")
@pytest.mark.parametrize("seed", range(50))
def test_a_walk_tells_beginnings_and_ends_by_turns(seed: int) -> None:
    """Whatever the values do: raised, over, raised, over; and never an end while it is above the lower level."""
    dice = random.Random(seed)
    episode: Episode | None = None
    told: list[str] = []
    value, now = 0.0, NOON
    for _ in range(400):
        value, now = (
            max(0.0, value + dice.uniform(-40, 40)),
            now + timedelta(seconds=dice.choice([1, 30, 90])),
        )
        for verdict in judge(
            [] if episode is None else [episode],
            {"dead_letters": [Measure("", value, "told")]},
            LIMITS,
            60.0,
            now,
        ):
            match verdict:
                case AlertRaised(begun):
                    assert value >= 100
                    told.append("raised")
                    episode = begun
                case AlertChanged(_, after):
                    episode = after
                case AlertOver():
                    assert value < 80
                    told.append("over")
                    episode = None
    assert told == ["raised", "over"] * (len(told) // 2) + ["raised"] * (len(told) % 2)


@pytest.mark.parametrize(("tries", "seconds"), [(0, 60), (1, 60), (2, 120), (5, 900), (10**9, 900)])
def test_pauses_grow_and_stay_bounded(tries: int, seconds: float) -> None:
    assert pause(tries) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (60, "1.0 min"), (5400, "1.5 h"), (172_800, "2.0 d")]
)
def test_lengths(seconds: float, text: str) -> None:
    assert length(seconds) == text
