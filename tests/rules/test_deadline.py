"""What a result means, and what the clock does to a request: the tables, and what holds for all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.request import RequestState, Standing
from holdfast.rules.deadline import (
    Due,
    Terms,
    due,
    extended,
    judge,
    may_be_accepted,
    next_look,
    terms,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
DEADLINE = NOON + 20 * MINUTE
SOFT = NOON + 15 * MINUTE
OPEN, COMPLETED, FAILED, CANCELLED = RequestState


@pytest.mark.covers("X31", "V42")
@pytest.mark.parametrize(
    ("state", "timed_out_at", "received_at", "standing"),
    [
        (OPEN, None, NOON, Standing.DECISIVE),
        (OPEN, None, DEADLINE - TICK, Standing.DECISIVE),
        (OPEN, None, DEADLINE, Standing.DECISIVE),  # exactly then is in time
        (OPEN, None, DEADLINE + TICK, Standing.LATE),  # whether it was swept or not
        (FAILED, DEADLINE + TICK, DEADLINE + TICK, Standing.LATE),
        (FAILED, DEADLINE + TICK, DEADLINE + 60 * MINUTE, Standing.LATE),
        (FAILED, None, NOON, Standing.DUPLICATE),  # the other side said that it failed
        (FAILED, None, DEADLINE + TICK, Standing.DUPLICATE),
        (COMPLETED, None, NOON, Standing.DUPLICATE),
        (COMPLETED, None, DEADLINE + TICK, Standing.DUPLICATE),
        (COMPLETED, DEADLINE + TICK, DEADLINE + MINUTE, Standing.DUPLICATE),  # a late one was accepted
        (CANCELLED, None, NOON, Standing.DUPLICATE),
    ],
)
def test_what_a_result_means(
    state: RequestState, timed_out_at: datetime | None, received_at: datetime, standing: Standing
) -> None:
    assert judge(state, DEADLINE, timed_out_at, received_at) is standing


@pytest.mark.parametrize(
    ("soft_at", "told_at", "now", "expected"),
    [
        (None, None, NOON, Due(False, False, DEADLINE)),
        (SOFT, None, NOON, Due(False, False, SOFT)),
        (SOFT, None, SOFT, Due(False, False, SOFT)),
        (SOFT, None, SOFT + TICK, Due(False, True, DEADLINE)),
        (SOFT, SOFT + TICK, SOFT + MINUTE, Due(False, False, DEADLINE)),
        (SOFT, SOFT + TICK, DEADLINE, Due(False, False, DEADLINE)),
        (SOFT, SOFT + TICK, DEADLINE + TICK, Due(True, False, None)),
        (SOFT, None, DEADLINE + TICK, Due(True, False, None)),  # nobody is told of a delay that is over
        (None, None, DEADLINE + TICK, Due(True, False, None)),
    ],
)
def test_what_the_clock_does(
    soft_at: datetime | None, told_at: datetime | None, now: datetime, expected: Due
) -> None:
    assert due(DEADLINE, soft_at, told_at, now) == expected


@pytest.mark.covers("V38")
def test_the_terms_of_a_new_request() -> None:
    assert terms(NOON, 20 * MINUTE, None, None) == Terms(DEADLINE, None)
    assert terms(NOON, 20 * MINUTE, None, 0.75) == Terms(DEADLINE, SOFT)
    assert terms(NOON, None, DEADLINE, 0.5) == Terms(DEADLINE, NOON + 10 * MINUTE)
    assert terms(NOON, None, NOON, None) is None
    assert terms(NOON, None, NOON - MINUTE, None) is None


def test_more_time() -> None:
    assert extended(Terms(DEADLINE, SOFT), None, MINUTE, NOON) == Terms(DEADLINE + MINUTE, SOFT + MINUTE)
    assert extended(Terms(DEADLINE, SOFT), SOFT, MINUTE, SOFT) == Terms(DEADLINE + MINUTE, SOFT)
    assert extended(Terms(DEADLINE, None), None, MINUTE, DEADLINE) == Terms(DEADLINE + MINUTE, None)
    assert extended(Terms(DEADLINE, None), None, MINUTE, DEADLINE + TICK) is None


@pytest.mark.parametrize(
    ("state", "timed_out_at", "standing", "failed", "why"),
    [
        (FAILED, DEADLINE, Standing.LATE, False, None),
        (FAILED, DEADLINE, Standing.LATE, True, "says that it failed"),
        (FAILED, DEADLINE, Standing.EARLY, False, "not late"),
        (FAILED, None, Standing.LATE, False, "it is failed"),
        (COMPLETED, DEADLINE, Standing.LATE, False, "accepted already"),
        (COMPLETED, None, Standing.DUPLICATE, False, "it is completed"),
        (OPEN, None, Standing.LATE, False, "it is open"),
    ],
)
def test_what_may_be_accepted(
    state: RequestState, timed_out_at: datetime | None, standing: Standing, failed: bool, why: str | None
) -> None:
    found = may_be_accepted(state, timed_out_at, standing, failed)
    assert found is None if why is None else found is not None and why in found


instants = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


@given(instants, instants, st.none() | instants, st.none() | instants)
def test_the_next_look_is_never_behind_the_deadline_and_always_comes_to_an_end(
    now: datetime, deadline: datetime, soft_at: datetime | None, told_at: datetime | None
) -> None:
    found = due(deadline, soft_at, told_at, now)
    assert found.times_out is (now > deadline)
    assert not (found.times_out and found.reports_delay)
    if found.next_at is None:
        assert found.times_out
    else:
        assert found.next_at <= deadline
        # What was told is not told again, and the next look finds something to do or is in the future.
        again = due(deadline, soft_at, now if found.reports_delay else told_at, now)
        assert not again.reports_delay or not found.reports_delay
        assert next_look(deadline, soft_at, told_at) <= deadline


@given(instants, instants, instants)
def test_a_result_and_the_clock_never_disagree(
    deadline: datetime, received_at: datetime, swept_at: datetime
) -> None:
    """Whichever holds the row first: in time it decides, late it does not."""
    in_time = received_at <= deadline
    assert (judge(OPEN, deadline, None, received_at) is Standing.DECISIVE) is in_time
    if swept_at <= received_at and due(deadline, None, None, swept_at).times_out:
        assert not in_time
        assert judge(FAILED, deadline, swept_at, received_at) is Standing.LATE
