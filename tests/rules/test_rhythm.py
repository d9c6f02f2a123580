"""When a step of the tick runs again."""

from __future__ import annotations

import itertools

import pytest

from holdfast.rules.rhythm import FAILED_MAX, LOOKS_EVERY, PORTION_MIN, Beat, Portion


@pytest.mark.parametrize(
    ("did", "due_in", "rests"),
    [
        (0, None, LOOKS_EVERY),  # nothing waits
        (5, None, LOOKS_EVERY),
        (0, 0.25, 0.25),  # wakes exactly then
        (0, 3600.0, LOOKS_EVERY),  # looks once a second, whatever it knows
        (500, -2.0, 0.0),  # more is due
        (500, 0.0, 0.0),
    ],
)
def test_when_a_step_runs_again(did: int, due_in: float | None, rests: float) -> None:
    beat = Beat()
    assert beat.is_due(-1e9)
    beat.ticked(100.0, did, due_in)
    assert beat.at == pytest.approx(100.0 + rests)
    assert beat.is_due(100.0 + rests)
    assert not beat.is_due(100.0 + rests - 0.001)


def test_what_somebody_else_holds_is_not_asked_for_all_the_time() -> None:
    beat, now, rests = Beat(), 0.0, []
    for _ in range(8):
        beat.ticked(now, 0, -1.0)
        rests.append(beat.at - now)
        now = beat.at
    assert all(0 < a <= b for a, b in itertools.pairwise(rests))
    assert rests[-1] == LOOKS_EVERY
    beat.ticked(now, 1, -1.0)  # it is free again
    assert beat.at == now
    beat.ticked(now, 0, -1.0)
    assert beat.at - now == pytest.approx(rests[0])


def test_what_another_worker_did_first_is_left_to_it() -> None:
    beat = Beat()
    beat.ticked(0.0, 0, -1.0, lost=True)
    assert beat.at == LOOKS_EVERY
    beat.ticked(1.0, 0, 0.25, lost=True)  # nothing more is due
    assert beat.at == 1.25


def test_a_step_that_fails_rests_longer_and_is_not_woken() -> None:
    beat, rests = Beat(), []
    for _ in range(9):
        beat.broke(0.0)
        rests.append(beat.at)
        beat.wake()
        assert not beat.is_due(beat.at - 0.5)
    assert rests[:3] == [1.0, 2.0, 4.0]
    assert rests[-1] == FAILED_MAX
    beat.ticked(100.0, 0, None)
    beat.wake()
    assert beat.is_due(100.0)


def test_a_portion_begins_small_is_halved_after_a_long_turn_and_doubled_after_a_short_one() -> None:
    portion, now, sizes = Portion(500), 0.0, []
    for seconds in (0.005, 0.005, 0.005, 0.015, 0.05, 0.05, 0.05, 0.005, 0.005):
        sizes.append(portion.begin(now))
        portion.took(sizes[-1])
        now += seconds
    assert sizes == [PORTION_MIN, 200, 400, 500, 500, 250, 125, PORTION_MIN, 200]


def test_what_passes_until_something_is_due_again_is_no_turn() -> None:
    portion = Portion(500)
    for now in (0.0, 0.001, 0.002, 60.0, 120.0):
        size = portion.begin(now)
        portion.took(size if now < 0.002 else size - 1)
    assert (size, portion.was_full) == (400, False)
    portion.begin(180.0)
    portion.took(400)
    assert portion.was_full
    assert portion.begin(181.0) == 200


def test_the_least_portion_is_not_more_than_the_most() -> None:
    portion = Portion(10)
    for now in range(5):
        assert portion.begin(float(now)) == 10
        portion.took(10)
