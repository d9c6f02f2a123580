"""Requests with deadlines: questions and commands of operators about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from ..bodies import codec
from ..errors import UsageError
from ..model.ids import new_id
from ..model.request import RequestState, Standing
from ..requests import verbs
from ..requests.hooks import BODY, RESULT, Pen, looked_up
from ..requests.kinds import duration
from ..requests.outside import failure, request_id, resolved
from ..store.plans import requests
from ..store.plans.audit import Entry
from ..store.plans.requests import Held, Whole
from ..store.statement import Plan
from .desk import Desk, needed, said
from .naming import named

T = TypeVar("T")

RESULTS_SHOWN = 100
STATES = tuple(str(each) for each in RequestState)


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request, without bodies. `late_results` of them can be accepted while `accepted_by` is None."""

    id: UUID
    kind: str
    variant: str | None
    subject: str | None
    state: str
    reason: str | None
    created_at: datetime
    deadline: datetime
    delayed_at: datetime | None
    ended_at: datetime | None
    timed_out_at: datetime | None
    received_at: datetime | None
    accepted_at: datetime | None
    accepted_by: str | None
    results: int
    late_results: int


@dataclass(frozen=True, slots=True)
class RequestResult:
    """A result that came for a request. `body` is JSON."""

    id: UUID
    received_at: datetime
    standing: str
    failed: str | None
    body: str
    source: UUID | None
    decided: bool  # it ended the request, or was accepted


@dataclass(frozen=True, slots=True)
class RequestDossier:
    """Everything that is stored about a request. `type` is that of the message that was sent, with the same id."""

    request: RequestLine
    type: str | None
    stream: str | None
    body: str
    results: Sequence[RequestResult]


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """How many requests need attention. `overdue`: the deadline has passed and no worker has swept them. `late`: a late
    result came that nobody has accepted. `next_deadline`: of the open one that must be looked at next."""

    overdue: int = 0
    late: int = 0
    next_deadline: datetime | None = None


class RequestsDesk:
    """Questions and commands about requests: `operations.requests`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def _pen(self) -> Pen:
        return Pen(self._desk.keys)

    # -- questions

    def list(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        subject: str | None = None,
        late: bool = False,
        limit: int = 50,
    ) -> list[RequestLine]:
        """Requests: open ones by their next deadline, then ended ones, the latest first.

        `late`: those with a late result that nobody has accepted.
        """
        if state is not None and state not in STATES:
            raise UsageError(f"There is no state {state!r} of a request; there are: {', '.join(STATES)}.")
        rows = self._desk.ask(
            requests.find(state=state, kind=kind, subject=subject, late=late, limit=max(1, limit))
        )
        return [_line(each) for each in rows]

    def named(self, text: str) -> UUID:
        """The request that a person means: its id may be given in part."""
        return named(self._desk, text, "request")

    def show(self, id: UUID | str, *, reveal: bool = False) -> RequestDossier:
        """A request with its results, the earliest first; NotFound if there is none.

        `reveal`: encrypted bodies are opened with the keys here; otherwise they are returned as stored.
        """
        own = request_id(id)

        def plan() -> Plan[tuple[Whole, Sequence[requests.Result]]]:
            whole, _ = yield from looked_up(own)
            return whole, (yield from requests.results(own, RESULTS_SHOWN))

        whole, results = self._desk.ask(plan())
        body = self._pen.opened(own, BODY, whole.body) if reveal else whole.body
        found = [self._result(each, whole.result, reveal) for each in results]
        return RequestDossier(_line(whole), whole.held.type, whole.held.stream, body, found)

    def _result(self, each: requests.Result, decisive: UUID | None, reveal: bool) -> RequestResult:
        body = self._pen.opened(each.id, RESULT, each.body) if reveal else each.body
        standing, decided = str(each.standing), each.id == decisive
        return RequestResult(each.id, each.received_at, standing, each.failed, body, each.source, decided)

    def counts(self) -> RequestCounts:
        """How many need attention."""
        return RequestCounts(*self._desk.ask(requests.counts()))

    def open(self) -> dict[str, int]:
        """How many are open, by kind."""
        return self._desk.ask(requests.count_open())

    # -- commands

    def resolve(
        self, id: UUID | str, result: object = None, *, failed: str | None = None, why: str | None = None
    ) -> Standing:
        """Give a result by hand. It is decided like any other."""
        desk, own, pen = self._desk, new_id(), self._pen
        failed_as = None if failed is None else failure(failed, desk.settings.error_chars)
        body = pen.sealed(own, RESULT, codec.encode(result, desk.settings))
        arrival = verbs.Arrival(own, request_id(id), failed_as, body)

        def verb() -> Plan[Standing]:
            (found,) = yield from verbs.resolve([arrival], pen)
            return resolved(arrival, found).standing

        return self._noted("resolve", arrival.request, why, verb, lambda standing: {"result": str(standing)})

    def extend(self, id: UUID | str, by: float | timedelta, *, why: str) -> datetime:
        """Give an open request more time; returns its new deadline. Refused if its deadline has passed."""
        longer = duration(by, f"Request {id} was given no more time: the time to add", UsageError)
        return self._noted(
            "extend", request_id(id), needed(why, self._chars), lambda: verbs.extend(request_id(id), longer)
        )

    def cancel(self, id: UUID | str, *, why: str) -> None:
        """End an open request. Refused if its deadline has passed."""
        text = needed(why, self._chars)
        self._noted("cancel", request_id(id), text, lambda: verbs.cancel(request_id(id), text, self._pen))

    def accept(self, id: UUID | str, result: UUID | str | None = None, *, why: str) -> UUID:
        """Complete a request that has timed out with a late result: the first good one, unless another one is given.

        Refused if there is none, and if one was accepted before. The hook for completed requests is called.
        """
        own, chosen = request_id(id), None if result is None else request_id(result)
        return self._noted(
            "accept", own, needed(why, self._chars),
            lambda: verbs.accept(own, chosen, self._desk.who, self._pen), lambda found: {"result": str(found)},
        )  # fmt: skip

    @property
    def _chars(self) -> int:
        return self._desk.settings.error_chars

    def _noted(
        self,
        action: str,
        id: UUID,
        why: str | None,
        verb: Callable[[], Plan[T]],
        after: Callable[[T], Mapping[str, Any]] = lambda _: {},
    ) -> T:
        """Run a command; its line in the audit is written in the same transaction."""
        desk = self._desk
        entry = Entry(f"requests.{action}", target=str(id), why=said(why, self._chars))

        def plan() -> Plan[T]:
            before = (yield from requests.hold([id])).get(id)
            answer = yield from verb()
            held = (yield from requests.hold([id])).get(id)
            if before is not None and held is not None:
                yield from desk.note(entry, _facts(before), {**_facts(held), **after(answer)})
            return answer

        return desk.command(f"Request {id}", plan)


def _facts(held: Held) -> dict[str, Any]:
    return {"state": str(held.state), "deadline": held.deadline.isoformat()}


def _line(whole: Whole) -> RequestLine:
    held = whole.held
    return RequestLine(
        held.id, held.kind, held.variant, held.subject, str(held.state), held.reason, held.created_at, held.deadline,
        held.told_at, held.ended_at, held.timed_out_at, whole.received_at, whole.accepted_at, whole.accepted_by,
        whole.results, whole.late,
    )  # fmt: skip
