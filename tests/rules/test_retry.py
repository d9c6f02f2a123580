"""How long a message waits after its n-th failure, and how often a handler may start."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.model.message import Reason
from holdfast.rules.retry import PROFILES, RetryPolicy, policy
from holdfast.settings import Settings

MIDDLE = 0.5  # the roll at which jitter changes nothing

# Seconds after failure 1, 2, ... 12.
DELAYS: dict[str, list[float]] = {
    "patient": [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600, 3600, 3600],
    "brisk": [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300],
    "api": [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300],
    "steady": [60] * 12,
    "immediate": [0] * 12,
}
STARTS = {"patient": 10, "brisk": 5, "api": 4, "steady": 3, "immediate": 5}
WITHOUT_JITTER = [name for name in DELAYS if name != "api"]


@pytest.mark.covers("X8")
def test_the_five_profiles() -> None:
    assert list(PROFILES) == ["patient", "brisk", "api", "steady", "immediate"]
    assert {name: [each.delay(n, MIDDLE) for n in range(1, 13)] for name, each in PROFILES.items()} == DELAYS
    assert {name: each.attempts_max for name, each in PROFILES.items()} == STARTS
    assert {name: each.jitter for name, each in PROFILES.items() if each.jitter} == {"api": 0.2}


@pytest.mark.parametrize("name", WITHOUT_JITTER)
@pytest.mark.parametrize("roll", [0.0, 0.25, 1.0])
def test_without_jitter_the_roll_does_not_matter(name: str, roll: float) -> None:
    assert [policy(name).delay(n, roll) for n in range(1, 13)] == DELAYS[name]


@pytest.mark.covers("W21", "W22", "W24")
def test_patient_doubles_from_thirty_seconds() -> None:
    minutes = [policy("patient").delay(n, MIDDLE) / 60 for n in range(1, 6)]
    assert minutes == [1, 2, 4, 8, 16]
    assert RetryPolicy().base == 30
    assert RetryPolicy(cap=10**7).delay(15, MIDDLE) == 30 * 2**15


@pytest.mark.covers("C17", "C18", "C36")
def test_brisk_doubles_from_two_seconds_up_to_five_minutes() -> None:
    assert [policy("brisk").delay(n, MIDDLE) for n in range(1, 9)] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert [policy("brisk").delay(n, MIDDLE) for n in (9, 10, 100)] == [300, 300, 300]


@pytest.mark.covers("V18", "V19", "V20", "X25")
@pytest.mark.parametrize(("n", "middle"), [(1, 2), (2, 4), (3, 8), (8, 256), (9, 300), (30, 300)])
def test_api_spreads_by_a_fifth_to_either_side(n: int, middle: float) -> None:
    api = policy("api")
    assert [api.delay(n, roll) for roll in (0.0, 0.25, 0.5, 0.75, 1.0)] == pytest.approx(
        [middle * 0.8, middle * 0.9, middle, middle * 1.1, middle * 1.2]
    )


@pytest.mark.covers("X48")
def test_patient_is_the_default_jitter_an_untruncated_option_and_retry_after_bounded() -> None:
    assert RetryPolicy() == PROFILES["patient"] == policy(Settings().retry)
    assert RetryPolicy().but(jitter=0.1).delay(1, 0.123) == pytest.approx(60 * (0.9 + 0.2 * 0.123))
    assert policy("api").delay(1, 0.123) == pytest.approx(1.6984)
    assert RetryPolicy().delay(1, MIDDLE, retry_after=3599.5) == 3599.5
    assert RetryPolicy().delay(1, MIDDLE, retry_after=86_400) == 3600


@pytest.mark.covers("V21")
@pytest.mark.parametrize("name", DELAYS)
def test_retry_after_comes_first(name: str) -> None:
    assert policy(name).delay(3, 0.9, retry_after=17) == 17
    assert policy(name).delay(3, 0.9, retry_after=0.25) == 0.25


@pytest.mark.parametrize("nothing", [None, 0, -5, math.nan])
def test_a_retry_after_that_asks_for_nothing_leaves_the_policy_its_delay(nothing: float | None) -> None:
    assert policy("brisk").delay(3, MIDDLE, retry_after=nothing) == 8


@pytest.mark.covers("W78", "W80")
def test_the_knobs() -> None:
    assert RetryPolicy(base=60).delay(1, MIDDLE) == 120
    assert RetryPolicy(cap=100).delay(2, MIDDLE) == 100
    assert RetryPolicy(cap=100).delay(1, MIDDLE) == 60
    assert RetryPolicy(attempts_max=20).attempts_max == 20
    assert policy("brisk").but(attempts_max=8) == RetryPolicy(attempts_max=8, base=1, cap=300)
    assert RetryPolicy(base=5, factor=1).delay(9, MIDDLE) == 5
    assert RetryPolicy(base=1, factor=3).delay(4, MIDDLE) == 81


def test_no_failure_no_wait() -> None:
    assert [each.delay(0, MIDDLE) for each in PROFILES.values()] == [0] * 5


@pytest.mark.covers("W19")
def test_a_reason_may_have_its_own_policy() -> None:
    own = RetryPolicy(attempts_max=20, base=1, factor=1)
    mixed = policy("brisk").but(per_reason={Reason.TRANSPORT_UNAVAILABLE: own})
    assert mixed.for_reason(Reason.TRANSPORT_UNAVAILABLE) is own
    assert mixed.for_reason(Reason.HANDLER_EXCEPTION) is mixed
    assert mixed.starts_max == 20
    assert policy("brisk").starts_max == 5


def test_what_is_hopeless_and_how_to_change_it() -> None:
    assert {reason.value for reason in Reason if RetryPolicy().hopeless(reason)} == {3, 5, 9, 10, 11, 12}
    assert not any(RetryPolicy(never=frozenset()).hopeless(reason) for reason in Reason)
    explicit = RetryPolicy(per_reason={Reason.VALIDATION_FAILURE: policy("steady")})
    assert not explicit.hopeless(Reason.VALIDATION_FAILURE)
    assert explicit.hopeless(Reason.SERIALIZATION_ERROR)


def test_by_name() -> None:
    own = RetryPolicy(attempts_max=2)
    assert policy(own) is own
    with pytest.raises(InvalidSettings, match=r"'apy'.* patient, brisk, api, steady, immediate"):
        policy("apy")


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts_max": 0},
        {"attempts_max": 2.5},
        {"attempts_max": True},
        {"base": -1},
        {"base": math.nan},
        {"base": 1e-9},
        {"base": 4000},
        {"base": "30"},
        {"factor": 0.5},
        {"factor": math.inf},
        {"cap": math.inf},
        {"jitter": 1.0},
        {"jitter": -0.1},
        {"per_reason": {Reason.UNKNOWN: "api"}},
        {"per_reason": {Reason.UNKNOWN: RetryPolicy(per_reason={Reason.UNKNOWN: RetryPolicy()})}},
        {"attempts": 3},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        RetryPolicy().but(**wrong)


def test_a_policy_does_not_change_with_the_mapping_it_was_made_from() -> None:
    given = {Reason.UNKNOWN: policy("api")}
    made = RetryPolicy(per_reason=given)
    given.clear()
    assert made.for_reason(Reason.UNKNOWN) is policy("api")
    assert hash(made) == hash(RetryPolicy(per_reason={Reason.UNKNOWN: policy("api")}))


@st.composite
def policies(draw: st.DrawFn, jitter: float | None = None) -> RetryPolicy:
    cap = draw(st.floats(0.001, 86_400))
    return RetryPolicy(
        base=draw(st.just(0.0) | st.floats(0.001, cap)),
        factor=draw(st.sampled_from([1.0, 1.0000001, 1.5, 2, 10, 1000]) | st.floats(1, 1000)),
        cap=cap,
        jitter=draw(st.floats(0, 0.99)) if jitter is None else jitter,
    )


MANY = st.integers(1, 10**9) | st.sampled_from([1023, 1024, 1025, 10_000, 2**63, 10**400])
ROLLS = st.floats(0, 1)


@given(policies(), MANY, ROLLS)
def test_no_number_of_failures_overflows_or_passes_the_cap(each: RetryPolicy, n: int, roll: float) -> None:
    delay = each.delay(n, roll)
    assert 0 <= delay <= each.cap * (1 + each.jitter) * (1 + 1e-12)
    assert (delay == 0) == (each.base == 0)


@given(policies(jitter=0.0), st.integers(0, 200))
def test_without_jitter_delays_never_shrink(each: RetryPolicy, n: int) -> None:
    assert each.delay(n, MIDDLE) <= each.delay(n + 1, MIDDLE)


@given(policies(), MANY, ROLLS, st.floats(min_value=0, exclude_min=True))
def test_retry_after_never_waits_longer_than_an_hour(
    each: RetryPolicy, n: int, roll: float, asked: float
) -> None:
    assert each.delay(n, roll, retry_after=asked) == min(asked, 3600)
