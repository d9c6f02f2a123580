"""Bounded catch-up as a value: what may begin so long after an outage, for any number of workers together."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import InvalidSettings
from holdfast.rules.breaker import Policy
from holdfast.rules.catchup import CatchUp, catch_up
from holdfast.rules.rate import Bucket, Hand

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("passed", "per_second"),
    [
        (-5.0, 10.0),
        (0.0, 10.0),
        (3.0, 20.0),
        (6.0, 40.0),
        (15.0, 320.0),
        (29.9, 10_006.0),
        (30.0, None),
        (1e9, None),
    ],
)
def test_it_doubles_every_three_seconds_and_ends_after_thirty(
    passed: float, per_second: float | None
) -> None:
    found = CatchUp(10.0).rate(passed)
    assert (found and found.per_second) == (per_second and pytest.approx(per_second, rel=0.001))


def test_no_rate_is_more_than_a_rate_can_be() -> None:
    found = CatchUp(1_000_000.0).rate(29.0)
    assert found is not None
    assert found.per_second == 1_000_000.0


def test_none_is_no_bound() -> None:
    assert catch_up(None) is None
    assert catch_up("30/min", 10) == CatchUp(0.5, 10)


@pytest.mark.parametrize(
    ("text", "doubles"), [("fast", 3.0), (10, 3.0), ("10/s", 0), ("10/s", True), ("10/s", "x")]
)
def test_what_cannot_work_is_refused(text: object, doubles: object) -> None:
    with pytest.raises(InvalidSettings):
        catch_up(text, doubles)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings):
        Policy().but(catch_up=text, catch_up_doubles=doubles)


@pytest.mark.parametrize("seed", range(10))
def test_workers_together_begin_no_more_than_the_slope(seed: int) -> None:
    """A backlog without end, any number of workers, one bucket: so many in the first seconds, and no more."""
    dice = random.Random(seed)
    slope = CatchUp(dice.choice([1.0, 10.0, 50.0]), dice.choice([1.0, 3.0]))
    first = slope.rate(0.0)
    assert first is not None
    workers = [Hand(first) for _ in range(dice.choice([1, 4, 9]))]
    bucket, began, now = Bucket(float(first.burst), START), 0, 0.0
    allowed = 0.0  # the area under the slope
    while now < 5 * slope.doubles:
        for hand in workers:
            rate = slope.rate(now)
            assert rate is not None
            hand.rate = rate
            if wanted := hand.need(now):
                granted, bucket = bucket.take(rate, wanted, START + timedelta(seconds=now))
                hand.take(granted, now)
            while hand.use(now):
                began += 1
        now += 0.01
        allowed += rate.per_second * 0.01
        # A burst is a second's worth; and each worker may keep one token back.
        assert began <= allowed + rate.per_second + len(workers) + 1, f"seed {seed} at {now}"
    assert began > allowed / 2, "and it does rise"
