"""How long cleaning goes on, and when it comes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rules.housekeeping import PAUSE_MIN, SHARE, Rest, goes_on, rest


@pytest.mark.parametrize(("spent", "more"), [(0.0, True), (0.49, True), (0.5, False), (7.0, False)])
def test_a_batch_follows_as_long_as_there_is_time(spent: float, more: bool) -> None:
    assert goes_on(spent, 0.5) is more


@pytest.mark.parametrize(
    ("spent", "more", "answer"),
    [
        (0.5, True, Rest(4.5, more=True)),
        (0.01, True, Rest(PAUSE_MIN, more=True)),
        (0.0, False, Rest(0.0, more=False)),
        (20.0, False, Rest(180.0, more=False)),  # a long look that found nothing
        (-1.0, True, Rest(PAUSE_MIN, more=True)),  # a clock that was set back
    ],
)
def test_the_rest(spent: float, more: bool, answer: Rest) -> None:
    seconds, goes = rest(spent, more)
    assert seconds == pytest.approx(answer.seconds)
    assert goes is answer.more


@given(st.lists(st.floats(0.0, 100.0), min_size=1), st.booleans())
def test_never_more_than_its_share(stretches: list[float], more: bool) -> None:
    spent = sum(stretches)
    assert spent <= SHARE * (spent + sum(rest(each, more).seconds for each in stretches)) + 1e-6
