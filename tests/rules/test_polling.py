"""How often a worker looks: the settings `poll_min` and `poll_max` bound it."""

from __future__ import annotations

import pytest

from holdfast.rules.rhythm import Rhythm


def rests(rhythm: Rhythm, seconds: float, due_in: float | None = None) -> list[float]:
    """The rests of an idle worker in so many seconds."""
    now, found = 0.0, []
    while now < seconds:
        found.append(rhythm.rest(now, idle=True, due_in=due_in))
        now += max(found[-1], 0.001)
    return found


@pytest.mark.covers("B13")
def test_a_poll_a_minute_is_a_setting() -> None:
    found = rests(Rhythm(60.0, 60.0, 0.0), 600)
    assert found == [60.0] * 10
    assert max(rests(Rhythm(0.002, 60.0, 0.0), 600)) == 60.0


def test_something_due_earlier_is_not_waited_for_that_long() -> None:
    assert rests(Rhythm(60.0, 60.0, 0.0), 10, due_in=2.5) == [2.5] * 4


def test_without_it_an_idle_worker_polls_once_a_second() -> None:
    assert max(rests(Rhythm(0.002, 0.1, 0.0), 60)) == 1.0
