"""Rates: the bucket that all share, and the tokens that a worker has in hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.rules.rate import Bucket, Hand, Rate, rate

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "per_second", "burst"),
    [
        ("100/s", 100.0, 100),
        ("30/min", 0.5, 1),
        (" 7200 / h ", 2.0, 2),
        ("1/d", 1 / 86_400, 1),
        ("2.5/s", 2.5, 3),
    ],
)
def test_how_a_rate_is_written(text: str, per_second: float, burst: int) -> None:
    assert rate(text) == Rate(per_second, burst)
    assert rate(text, burst=7).burst == 7


@pytest.mark.parametrize(
    "text", ["", "100", "100/", "/s", "0/s", "-1/s", "1/w", "fast", "1e9/s", None, 100, "0.5/d"]
)
def test_what_is_no_rate_is_refused(text: object) -> None:
    with pytest.raises(InvalidSettings):
        rate(text)


@pytest.mark.parametrize("burst", [0, -1, 1.5, True])
def test_a_burst_is_a_whole_number(burst: int) -> None:
    with pytest.raises(InvalidSettings):
        rate("1/s", burst=burst)


def test_a_bucket_gives_what_is_there_and_fills_at_its_rate() -> None:
    ten = Rate(10.0, 20)
    granted, bucket = Bucket(20.0, NOW).take(ten, 15, NOW)
    assert (granted, bucket.tokens) == (15, 5.0)
    granted, bucket = bucket.take(ten, 15, NOW)
    assert (granted, bucket.tokens) == (5, 0.0)
    assert bucket.take(ten, 15, NOW) == (0, bucket)
    assert bucket.take(ten, 15, later(0.35))[0] == 3
    assert bucket.take(ten, 15, later(-5))[0] == 0  # a clock that went back gives nothing and takes nothing


def test_after_an_outage_no_more_than_the_burst_is_there() -> None:
    """Promise 5: downtime is late, not lost, and it is caught up at a bounded rate."""
    hundred = rate("100/s")
    _, bucket = Bucket(100.0, NOW).take(hundred, 100, NOW)
    granted, bucket = bucket.take(hundred, 10**6, later(3600))
    assert granted == 100
    begun = 0
    for n in range(1000):
        granted, bucket = bucket.take(hundred, 10**6, later(3600 + n / 100))
        begun += granted
    assert 990 <= begun <= 1000


@given(
    st.integers(1, 50),
    st.floats(0.1, 100.0),
    st.lists(st.tuples(st.integers(1, 60), st.floats(0.0, 3.0)), max_size=40),
)
def test_never_more_than_the_burst_and_the_time_that_passed(
    burst: int, per_second: float, takes: list[tuple[int, float]]
) -> None:
    limit = Rate(per_second, burst)
    bucket, at, total = Bucket(float(burst), NOW), 0.0, 0
    for wanted, passed in takes:
        at += passed
        granted, bucket = bucket.take(limit, wanted, later(at))
        assert 0 <= granted <= wanted
        total += granted
        assert total <= burst + per_second * at + 0.001
        assert 0 <= bucket.tokens <= burst


def test_a_hand_takes_as_much_at_a_time_as_it_uses_in_a_moment() -> None:
    hand, taken = Hand(Rate(1000.0, 1000)), []
    for n in range(1000):  # one each millisecond
        now = n / 1000
        if need := hand.need(now):
            taken.append(need)
            hand.take(need, now)
        assert hand.use(now)
    assert taken[:8] == [1, 1, 2, 4, 8, 16, 32, 64]
    assert max(taken) <= 250
    assert len(taken) < 15  # and not a thousand
    for n in range(20):  # one each second: it asks for less and less
        now = 10.0 + n
        if need := hand.need(now):
            taken.append(need)
            hand.take(need, now)
        assert hand.use(now)
    assert taken[-1] == 1


def test_what_is_not_used_soon_is_let_go_but_for_one() -> None:
    hand = Hand(Rate(100.0, 100), tokens=25, taken_at=0.0)
    assert hand.has(0.9) == 25
    assert hand.has(1.0) == 1
    assert hand.need(100.0) == 0  # an idle queue costs no writes
    assert hand.use(100.0)
    assert hand.need(100.0) == 1


def test_an_empty_bucket_is_not_asked_all_the_time() -> None:
    hand, asked = Hand(rate("1/s")), 0
    for n in range(1000):
        now = n / 100
        if hand.need(now):
            asked += 1
            hand.take(0, now)
    assert asked <= 20


@pytest.mark.parametrize("seed", range(5))
def test_many_workers_together_keep_to_the_rate(seed: int) -> None:
    """In any T seconds: burst + rate * (T + 1) + one for each worker; and a backlog is worked off at the rate."""
    dice = random.Random(seed)
    limit = Rate(50.0, 50)
    workers = [Hand(limit) for _ in range(8)]
    bucket, starts = Bucket(50.0, NOW), []
    for n in range(4000):  # 40 seconds
        now = n / 100
        for hand in workers:
            # Busy elsewhere; and a while in which nothing is there to do.
            if dice.random() < 0.5 or 15 < now < 20:
                continue
            if need := hand.need(now):
                granted, bucket = bucket.take(limit, need, later(now))
                hand.take(granted, now)
            if hand.use(now):
                starts.append(now)
    for begin in range(40):
        for seconds in (1, 3, 10):
            inside = sum(begin <= at < begin + seconds for at in starts)
            assert inside <= 50 + 50 * (seconds + 1) + 8
    steady = sum(25 <= at < 40 for at in starts)
    assert 0.9 * 50 * 15 <= steady <= 50 * 15 + 50
