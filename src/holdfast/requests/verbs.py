"""The transactions of requests: the plans of the store with the decisions of `rules/deadline.py` between them.

Each one locks the rows of its requests first, reads the clock in the next statement, decides, and stores what it
decided together with the messages for the hooks. A refusal is raised before anything is written, so that a caller's
transaction has nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ..errors import InvalidMessage, NotFound, Refused
from ..model.message import NewMessage
from ..model.request import CANCELLED, TIMEOUT, Happening, RequestState, Standing
from ..rules import deadline as rules
from ..rules.deadline import Terms
from ..store.plans import engine, requests
from ..store.plans.requests import Held
from ..store.statement import Plan
from .hooks import Pen, hook_call

SWEPT_MAX = 500  # requests in one transaction


@dataclass(frozen=True, slots=True)
class Opening:
    """A request that is to be stored, and the message that goes out with it."""

    id: UUID
    kind: str
    variant: str | None
    subject: str | None
    body: str  # sealed, if there are keys
    within: timedelta | None
    deadline: datetime | None
    soft: float | None
    message: NewMessage | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A result that came in. `id` is its own; `source` the message that brought it."""

    id: UUID
    request: UUID
    failed: str | None
    body: str  # sealed, if there are keys
    source: UUID | None = None
    kind: str | None = None  # a result of another kind of request is not taken


class Decided(NamedTuple):
    """What became of a result."""

    standing: Standing
    received_at: datetime
    state: RequestState


class Swept(NamedTuple):
    """What a sweep did. `queues` got messages for hooks."""

    ended: int  # timed out, or decided by a result that came before the request
    delayed: int
    queues: frozenset[str]


@dataclass
class _Changes:
    """The changes of requests that are locked, and the hooks to call."""

    rows: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    happened: list[tuple[Happening, Held, dict[str, Any]]] = field(default_factory=list)

    def count(self, held: Held, standing: Standing) -> None:
        row = self._row(held)
        row["results"] += 1
        row["late"] += standing is Standing.LATE

    def end(self, held: Held, state: RequestState, at: datetime, **facts: Any) -> Held:
        """The request as it is then. Its hook is called."""
        row = self._row(held)
        row |= {"state": str(state), "ended_at": at, **facts}
        happening = Happening.COMPLETED if state is RequestState.COMPLETED else Happening.FAILED
        ended = held._replace(
            state=state, reason=facts.get("reason"), ended_at=at, timed_out_at=facts.get("timed_out_at")
        )
        self.happened.append((happening, ended, {key: facts.get(key) for key in ("result", "received_at")}))
        return ended

    def time_out(self, held: Held, at: datetime) -> Held:
        return self.end(held, RequestState.FAILED, at, reason=TIMEOUT, timed_out_at=at)

    def decide(self, held: Held, id: UUID, failed: str | None, received_at: datetime, at: datetime) -> Held:
        """The first result in time has come."""
        state = RequestState.COMPLETED if failed is None else RequestState.FAILED
        return self.end(held, state, at, reason=failed, result=str(id), received_at=received_at)

    def _row(self, held: Held) -> dict[str, Any]:
        return self.rows.setdefault(held.id, {"id": str(held.id), "results": 0, "late": 0})


def open_(opening: Opening, pen: Pen) -> Plan[tuple[bool, datetime | None]]:
    """Store a request and its message. Returns whether it is new, and its deadline. A known id stores nothing."""
    at = yield from requests.moment()
    terms = rules.terms(at, opening.within, opening.deadline, opening.soft)
    if terms is None:
        raise InvalidMessage(
            f"Nothing was stored: the deadline {opening.deadline} of the request is not in the future. It is "
            f"{at:%Y-%m-%d %H:%M:%S} UTC in the database."
        )
    if terms.deadline - at > rules.WITHIN_MAX:
        raise InvalidMessage(
            f"Nothing was stored: the deadline {opening.deadline} of the request is more than ten years ahead."
        )
    message = opening.message
    is_new, has_results = yield from requests.open_(
        opening.id, kind=opening.kind, variant=opening.variant, type=None if message is None else message.type,
        stream=None if message is None else message.stream, subject=opening.subject, body=opening.body, created_at=at,
        deadline=terms.deadline, soft_at=terms.soft_at, next_at=rules.next_look(terms.deadline, terms.soft_at, None),
    )  # fmt: skip
    if not is_new:
        return False, None
    if message is not None:
        yield from engine.append([message])
    if has_results:
        yield from decide_early([opening.id], pen)
    return True, terms.deadline


def resolve(
    arrivals: Sequence[Arrival], pen: Pen, *, keeps_early: bool = False
) -> Plan[list[Decided | None]]:
    """Results that came in, judged at the time at which their requests are locked. None: not stored.

    Those of requests that are not there are kept with `keeps_early`, and count when the request is there. One that the
    same message brought before is not stored again.
    """
    held = yield from requests.hold(each.request for each in arrivals)
    at = yield from requests.moment()
    return (yield from judged(arrivals, held, at, pen, keeps_early=keeps_early))


def judged(
    arrivals: Sequence[Arrival], held: dict[UUID, Held], at: datetime, pen: Pen, *, keeps_early: bool
) -> Plan[list[Decided | None]]:
    """The same for requests that are locked already: the time was read while they were."""
    # What each result means if all of them are new. One that is not was judged when it came first: then the request is
    # not open any more, or its first result is an early one, which is counted as such.
    standings: list[Standing | None] = []
    states = dict(held)
    for each in arrivals:
        row = states.get(each.request)
        if row is not None and each.kind not in (None, row.kind):
            standings.append(None)
        elif row is None:
            standings.append(Standing.EARLY if keeps_early else None)
        else:
            standing = rules.judge(row.state, row.deadline, row.timed_out_at, at)
            standings.append(standing)
            if standing is Standing.DECISIVE:
                states[each.request] = row._replace(state=RequestState.COMPLETED)
    kept = [
        (each, standing) for each, standing in zip(arrivals, standings, strict=True) if standing is not None
    ]
    if not kept:
        return [None] * len(arrivals)
    stored = yield from requests.record([_row(each, standing, at) for each, standing in kept])
    changes, held = _Changes(), dict(held)
    decided: dict[UUID, Decided] = {}
    for each, standing in kept:
        if each.id not in stored:
            continue
        row = held.get(each.request)
        if row is not None:
            changes.count(row, standing)
            if standing is Standing.DECISIVE:
                row = changes.decide(row, each.id, each.failed, at, at)
            elif row.state is RequestState.OPEN and standing is Standing.LATE:
                row = changes.time_out(row, at)  # no worker has swept it yet
            held[each.request] = row
        state = RequestState.OPEN if row is None else row.state
        decided[each.id] = Decided(standing, at, state)
    yield from _write(changes, pen)
    return [decided.get(each.id) for each in arrivals]


def decide_early(ids: Sequence[UUID], pen: Pen) -> Plan[int]:
    """Decide requests for which a result was there before they were committed; returns how many."""
    found = yield from requests.early(ids)
    if not found:
        return 0
    held = yield from requests.hold(each.request for each in found)
    at = yield from requests.moment()
    changes = _Changes()
    # Else another worker has decided it.
    fresh = {id for id, row in held.items() if row.state is RequestState.OPEN}
    for each in found:
        if each.request not in fresh:
            continue
        row = held[each.request]
        changes.count(row, Standing.EARLY)
        if row.state is RequestState.OPEN and each.received_at <= row.deadline:
            held[each.request] = changes.decide(row, each.id, each.failed, each.received_at, at)
    yield from _write(changes, pen)
    return len(changes.happened)


def sweep(pen: Pen, count: int = SWEPT_MAX) -> Plan[Swept]:
    """Time out requests whose deadline has passed, and report the delay of others: a part of them, the oldest first."""
    rows = yield from requests.due(count)
    if not rows:
        return Swept(0, 0, frozenset())
    at = yield from requests.moment()  # read after the rows are locked
    early = {each.request: each for each in reversed((yield from requests.early([row.id for row in rows])))}
    changes, delayed = _Changes(), []
    for row in rows:
        first = early.get(row.id)
        if first is not None and first.received_at <= row.deadline:
            changes.count(row, Standing.EARLY)
            changes.decide(row, first.id, first.failed, first.received_at, at)
            continue
        due = rules.due(row.deadline, row.soft_at, row.told_at, at)
        if due.times_out:
            changes.time_out(row, at)
        elif due.reports_delay:
            delayed.append(row.id)
            changes.happened.append((Happening.DELAYED, row, {}))
        elif due.next_at is not None:
            # Stored by hand with another time: it is looked at when there is something to do.
            yield from requests.extend(row.id, row.deadline, row.soft_at, due.next_at)
    if delayed:
        yield from requests.delay_reported(delayed, at)
    queues = yield from _write(changes, pen)
    return Swept(len(changes.rows), len(delayed), queues)


def extend(id: UUID, longer: timedelta) -> Plan[datetime]:
    """Give an open request more time; its new deadline. Refused if it has ended, or its deadline has passed."""
    row = yield from _held(id)
    at = yield from requests.moment()
    _refuse_ended(row, at, "given more time")
    if longer > rules.WITHIN_MAX - (row.deadline - at):
        raise Refused(
            f"Request {id} cannot be given more time: its deadline would be more than ten years ahead."
        )
    terms = rules.extended(Terms(row.deadline, row.soft_at), row.told_at, longer, at)
    assert terms is not None  # `_refuse_ended` compared the same two times
    next_at = rules.next_look(terms.deadline, terms.soft_at, row.told_at)
    yield from requests.extend(id, terms.deadline, terms.soft_at, next_at)
    return terms.deadline


def cancel(id: UUID, why: str | None, pen: Pen) -> Plan[None]:
    """End an open request; its result is not waited for. Refused if it has ended, or its deadline has passed."""
    row = yield from _held(id)
    at = yield from requests.moment()
    _refuse_ended(row, at, "cancelled")
    changes = _Changes()
    changes.end(row, RequestState.CANCELLED, at, reason=why or CANCELLED)
    yield from _write(changes, pen)


def accept(id: UUID, result: UUID | None, who: str, pen: Pen) -> Plan[UUID]:
    """Complete a request that has timed out with a late result, the first good one unless another is named."""
    row = yield from _held(id)
    at = yield from requests.moment()
    found = yield from requests.results(id, SWEPT_MAX)
    late = [each for each in found if each.standing is Standing.LATE and each.failed is None]
    chosen = next((each for each in (late if result is None else found) if result in (None, each.id)), None)
    if chosen is None and result is not None:
        raise NotFound(f"Request {id} has no result {result}: `holdfast requests show {id}` lists them.")
    standing = Standing.LATE if chosen is None else chosen.standing
    why = rules.may_be_accepted(
        row.state, row.timed_out_at, standing, chosen is not None and chosen.failed is not None
    )
    if why is None and chosen is None:
        why = "no good result has come late"
    if why is not None or chosen is None:
        raise Refused(f"No late result of request {id} can be accepted: {why}.")
    yield from requests.accept(id, chosen.id, chosen.received_at, at, who)
    facts = {
        "result": str(chosen.id), "received_at": chosen.received_at, "accepted_at": at, "accepted_by": who,
    }  # fmt: skip
    changes = _Changes(
        happened=[(Happening.COMPLETED, row._replace(state=RequestState.COMPLETED, reason=None), facts)]
    )
    yield from _write(changes, pen)
    return chosen.id


def _held(id: UUID) -> Plan[Held]:
    rows = yield from requests.hold([id])
    if id not in rows:
        raise NotFound(f"There is no request {id}: `holdfast requests list` shows them.")
    return rows[id]


def _refuse_ended(row: Held, at: datetime, what: str) -> None:
    if row.state is not RequestState.OPEN:
        raise Refused(f"Request {row.id} cannot be {what}: it is {row.state}.")
    if at > row.deadline:
        raise Refused(
            f"Request {row.id} cannot be {what}: its deadline passed at {row.deadline:%Y-%m-%d %H:%M:%S} UTC."
        )


def _row(each: Arrival, standing: Standing, at: datetime) -> dict[str, Any]:
    return {
        "id": str(each.id),
        "request": str(each.request),
        "received_at": at,
        "standing": str(standing),
        "failed": each.failed,
        "body": each.body,
        "source": None if each.source is None else str(each.source),
    }


def _write(changes: _Changes, pen: Pen) -> Plan[frozenset[str]]:
    """Store what changed, and a message for each hook that there is; returns the queues of these."""
    if changes.rows:
        yield from requests.settle(list(changes.rows.values()))
    if not changes.happened:
        return frozenset()
    calls = [hook_call(happening, held, facts) for happening, held, facts in changes.happened]
    there = yield from requests.hooks(each.queue for each in calls)
    messages: Iterable[NewMessage] = [pen.message(each) for each in calls if each.queue in there]
    if messages:
        yield from engine.append(list(messages))
    return frozenset(there)
