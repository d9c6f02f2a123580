"""Deadlines of requests: the meaning of a result that comes at a given time, and what falls due when none comes.

The time was read while the request's row was locked. So of concurrent results, the first that came in time decides,
and after the deadline none does. A result that comes exactly at the deadline is in time. A request whose deadline has
passed has failed even if no worker has recorded that yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..model.request import RequestState, Standing

WITHIN_MIN, WITHIN_MAX = timedelta(milliseconds=1), timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class Terms:
    """When a request must be answered, and when its delay is reported. `soft_at` None: it is not reported."""

    deadline: datetime
    soft_at: datetime | None


def terms(
    created_at: datetime, within: timedelta | None, deadline: datetime | None, soft: float | None
) -> Terms | None:
    """The terms of a new request: a given deadline, or a time after its creation. None: it is not in the future."""
    until = deadline if deadline is not None else created_at + (within or timedelta())
    if until - created_at < WITHIN_MIN:
        return None
    return Terms(until, None if soft is None else created_at + (until - created_at) * soft)


def judge(
    state: RequestState, deadline: datetime, timed_out_at: datetime | None, received_at: datetime
) -> Standing:
    """The meaning of a result that is received now."""
    if state is RequestState.OPEN:
        return Standing.DECISIVE if received_at <= deadline else Standing.LATE
    if state is RequestState.FAILED and timed_out_at is not None:
        return Standing.LATE
    return Standing.DUPLICATE


@dataclass(frozen=True, slots=True)
class Due:
    """What an open request needs now. `next_at` is when to look at it again; None: it has ended."""

    times_out: bool
    reports_delay: bool
    next_at: datetime | None


def due(deadline: datetime, soft_at: datetime | None, told_at: datetime | None, now: datetime) -> Due:
    """What the clock does to an open request. If it has timed out, its delay is not reported any more."""
    if now > deadline:
        return Due(True, False, None)
    delay_is_ahead = soft_at is not None and told_at is None
    if delay_is_ahead and soft_at is not None and now > soft_at:
        return Due(False, True, deadline)
    return Due(False, False, next_look(deadline, soft_at, told_at))


def next_look(deadline: datetime, soft_at: datetime | None, told_at: datetime | None) -> datetime:
    """When an open request has something to do next."""
    if soft_at is None or told_at is not None:
        return deadline
    return min(soft_at, deadline)


def extended(terms: Terms, told_at: datetime | None, longer: timedelta, now: datetime) -> Terms | None:
    """The terms with a later deadline. The delay is reported that much later. None: the deadline has passed already."""
    if now > terms.deadline:
        return None
    soft_at = terms.soft_at
    if soft_at is not None and told_at is None:
        soft_at += longer
    return Terms(terms.deadline + longer, soft_at)


def may_be_accepted(
    state: RequestState, timed_out_at: datetime | None, standing: Standing, failed: bool
) -> str | None:
    """Why a result cannot be accepted by an operator; None: it can."""
    if state is RequestState.COMPLETED and timed_out_at is not None:
        return "a late result of it has been accepted already"
    if state is not RequestState.FAILED or timed_out_at is None:
        return f"it is {state}, and only a request that has timed out has late results to accept"
    if standing is not Standing.LATE:
        return f"this result is {standing}, not late"
    if failed:
        return "this result says that it failed"
    return None
