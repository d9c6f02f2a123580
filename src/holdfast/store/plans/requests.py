"""Requests with deadlines and their results. The caller decides the meaning of a result (rules/deadline.py).

A request's row is locked before the clock is read, and the clock in a statement of its own: `hold`, then `moment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ...model.request import RequestState, Standing
from ..statement import Plan, Row, Verb, single, statements
from ..values import as_id, instant
from .rows import Pruned

sql = statements("requests")


class Held(NamedTuple):
    """The state of a request, while its row is locked."""

    id: UUID
    kind: str
    variant: str | None
    type: str | None
    stream: str | None
    subject: str | None
    state: RequestState
    reason: str | None
    created_at: datetime
    deadline: datetime
    soft_at: datetime | None
    told_at: datetime | None
    ended_at: datetime | None
    timed_out_at: datetime | None


class Whole(NamedTuple):
    """A row of `request`. `body` is JSON, and may be sealed."""

    held: Held
    body: str
    result: UUID | None
    received_at: datetime | None
    accepted_at: datetime | None
    accepted_by: str | None
    results: int
    late: int


class Result(NamedTuple):
    """A row of `request_result`. `body` is JSON, and may be sealed."""

    id: UUID
    received_at: datetime
    standing: Standing
    failed: str | None
    body: str
    source: UUID | None


class Early(NamedTuple):
    id: UUID
    request: UUID
    received_at: datetime
    failed: str | None


# -- while rows are locked


def open_(
    id: UUID, *, kind: str, variant: str | None, type: str | None, stream: str | None, subject: str | None, body: str,
    created_at: datetime, deadline: datetime, soft_at: datetime | None, next_at: datetime,
) -> Plan[tuple[bool, bool]]:  # fmt: skip
    """Store a request. Returns whether it is new, else nothing is stored, and whether results were there before it."""
    rows = yield sql(
        "request_open", id=id, kind=kind, variant=variant, type=type, stream=stream, subject=subject, body=body,
        created_at=created_at, deadline=deadline, soft_at=soft_at, next_at=next_at,
    )  # fmt: skip
    taken = int(rows[0][0]) if rows else 0
    return taken > 0, taken > 1


def hold(ids: Iterable[UUID]) -> Verb[dict[UUID, Held]]:
    """Lock requests until the transaction ends, in the order of their ids, and read them."""
    return Verb("requests", "hold", (sorted(set(ids), key=str),))


def moment() -> Verb[datetime]:
    """The time now, and not when the plan began: locked rows were locked before it."""
    return Verb("requests", "moment")


def record(rows: Sequence[dict[str, Any]]) -> Plan[set[UUID]]:
    """Store results; returns those that are new. One that the same message has brought before is not stored."""
    stored = yield sql("request_record").with_documents(rows=list(rows))
    return {as_id(id) for (id,) in stored}


def settle(rows: Sequence[dict[str, Any]]) -> Plan[None]:
    """Count results of requests, and end those that get a new state."""
    empty = dict.fromkeys(("state", "reason", "ended_at", "timed_out_at", "result", "received_at"))
    yield sql("request_settle").with_documents(rows=[{**empty, **row} for row in rows])


def extend(id: UUID, deadline: datetime, soft_at: datetime | None, next_at: datetime) -> Plan[None]:
    """Give an open request another deadline."""
    yield sql("request_extend", id=id, deadline=deadline, soft_at=soft_at, next_at=next_at)


def accept(id: UUID, result: UUID, received_at: datetime, at: datetime, who: str) -> Plan[None]:
    """Complete a request that has timed out with a late result."""
    yield sql("request_accept", id=id, result=result, received_at=received_at, at=at, who=who)


def hooks(names: Iterable[str]) -> Plan[set[str]]:
    """Which of these queues there are: an application has declared a hook."""
    rows = yield sql("request_hooks", names=sorted(set(names)))
    return {name for (name,) in rows}


# -- by the clock


def next_due() -> Plan[tuple[datetime, datetime | None]]:
    """The time, and when the next request needs a worker."""
    ((now, due),) = yield sql("request_next")
    return instant(now), instant(due)


def due(count: int) -> Plan[list[Held]]:
    """Lock requests whose time has come, the oldest first; those that others have locked are left out."""
    return [_held(row) for row in (yield sql("request_due", count=count))]


def put_off(seconds: float) -> Plan[str | None]:
    """Postpone the request whose time came first; its id. Nothing else of its row is read or changed."""
    at = (yield from moment()) + timedelta(seconds=seconds)
    rows = yield sql("request_put_off", at=at)
    return str(rows[0][0]) if rows else None


def delay_reported(ids: Sequence[UUID], at: datetime) -> Plan[None]:
    """The delay of these was reported."""
    yield sql("request_delay_reported", ids=list(ids), at=at)


def early(ids: Sequence[UUID]) -> Plan[list[Early]]:
    """Results that were there before these requests, the first to come first."""
    rows = yield sql("request_early", ids=list(ids))
    return [Early(as_id(id), as_id(request), instant(at), failed) for id, request, at, failed in rows]


@single
def waiting_early(count: int) -> Plan[list[UUID]]:
    """Open requests for which a result was there before them."""
    return [as_id(id) for (id,) in (yield sql("request_waiting_early", count=count))]


# -- housekeeping


def prune(before: datetime, limit: int) -> Plan[Pruned]:
    """Remove requests that ended before a moment, with their results, and results that never had a request."""
    gone = yield sql("request_prune", before=before, limit=limit)
    if gone:
        yield sql("request_prune_results", ids=[as_id(id) for (id,) in gone])
    orphans = yield sql("request_prune_early", before=before, limit=limit)
    return Pruned(len(gone) + len(orphans), len(gone) >= limit or len(orphans) >= limit, None)


# -- looking


def show(id: UUID) -> Plan[Whole | None]:
    rows = yield sql("request_show", id=id)
    return _whole(rows[0]) if rows else None


def find(
    *, state: str | None, kind: str | None, subject: str | None, late: bool, limit: int
) -> Plan[list[Whole]]:
    """Requests: the open ones that need something next first, then those that ended last."""
    wanted = {"kind": kind, "subject": subject}
    rows: list[Row] = []
    if state in (None, "open") and not late:
        rows += yield sql("request_find_open", **wanted, count=limit)
    if state != "open" and len(rows) < limit:
        rows += yield sql("request_find_ended", **wanted, state=state, late=late, count=limit - len(rows))
    return [_whole(row) for row in rows]


@single
def counts() -> Plan[tuple[int, int, datetime | None]]:
    """How many are overdue, how many have late results that nobody has accepted; the next deadline."""
    ((overdue, late, following),) = yield sql("request_counts")
    return int(overdue), int(late), instant(following)


@single
def count_open() -> Plan[dict[str, int]]:
    """How many are open, by kind."""
    return {kind: int(count) for kind, count in (yield sql("request_count_open"))}


def results(id: UUID, count: int) -> Plan[list[Result]]:
    """The results of a request, the first to come first."""
    return [_result(row) for row in (yield sql("request_results", id=id, count=count))]


@single
def result(id: UUID) -> Plan[Result | None]:
    rows = yield sql("request_result", id=id)
    return _result(rows[0]) if rows else None


def held(rows: Sequence[Row]) -> dict[UUID, Held]:
    found = [_held(row) for row in rows]
    return {each.id: each for each in found}


def _held(row: Row) -> Held:
    id, kind, variant, type, stream, subject, state, reason, *times = row
    return Held(
        as_id(id), kind, variant, type, stream, subject, RequestState(state), reason, *map(instant, times)
    )


def _whole(row: Row) -> Whole:
    body, result, received_at, accepted_at, accepted_by, results, late = row[14:]
    found = None if result is None else as_id(result)
    return Whole(
        _held(row[:14]), body, found, instant(received_at), instant(accepted_at), accepted_by, results, late
    )


def _result(row: Row) -> Result:
    id, received_at, standing, failed, body, source = row
    return Result(
        as_id(id),
        instant(received_at),
        Standing(standing),
        failed,
        body,
        None if source is None else as_id(source),
    )
