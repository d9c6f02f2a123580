"""Hooks of requests: the messages that say what happened, and the handlers that get them.

The message is stored in the transaction in which it happened, in the queue of the hook, and holds what the request was
like then. The bodies of the request and of its result are looked up when the hook is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec

from ..bodies.keys import SEALED, Keys
from ..errors import BodySealed, InvalidSettings, NotFound
from ..handlers.context import Dead
from ..handlers.declare import AnyHandler, Application, HandlerOptions, declare
from ..model.message import NewMessage
from ..model.request import Happening, RequestState, hook_queue, hook_type
from ..rules.aftermath import AfterDeath
from ..store import Store
from ..store.plans import requests
from ..store.plans.requests import Held
from ..store.statement import Plan
from .kinds import HookKeywords, Request, RequestKind

BODY, RESULT = "holdfast/request", "holdfast/request.result"  # what a sealed body is bound to, beside its id


class HookBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the message for a hook."""

    request: UUID
    kind: str
    state: str
    created_at: datetime
    deadline: datetime
    variant: str | None = None
    subject: str | None = None
    reason: str | None = None
    ended_at: datetime | None = None
    timed_out_at: datetime | None = None
    result: UUID | None = None
    received_at: datetime | None = None
    accepted_at: datetime | None = None
    accepted_by: str | None = None


@dataclass(frozen=True, slots=True)
class HookCall:
    """A call of a hook: what happened to a request."""

    happening: Happening
    body: HookBody

    @property
    def queue(self) -> str:
        return hook_queue(self.body.kind, self.happening)


def hook_call(happening: Happening, held: Held, facts: dict[str, Any]) -> HookCall:
    result = facts.get("result")
    body = HookBody(
        request=held.id, kind=held.kind, state=str(held.state), created_at=held.created_at, deadline=held.deadline,
        variant=held.variant, subject=held.subject, reason=held.reason, ended_at=held.ended_at,
        timed_out_at=held.timed_out_at, result=None if result is None else UUID(str(result)),
        received_at=facts.get("received_at"), accepted_at=facts.get("accepted_at"),
        accepted_by=facts.get("accepted_by"),
    )  # fmt: skip
    return HookCall(happening, body)


def hook_id(request: UUID, created_at: datetime, happening: Happening) -> UUID:
    return uuid5(request, f"{created_at.astimezone(UTC).isoformat()} {happening}")


@dataclass(frozen=True, slots=True)
class Pen:
    """Writes messages and bodies, sealed where there are keys."""

    keys: Keys | None

    def message(self, each: HookCall) -> NewMessage:
        """Its id is made of the request and of what happened: a second one would be refused.

        The time of the request belongs to it: an id of the user's may be used again when the first request is gone.
        """
        text = msgspec.json.encode(each.body).decode()
        id, type = hook_id(each.body.request, each.body.created_at, each.happening), hook_type(each.happening)
        return NewMessage(id, type, self.sealed(id, type, text), subject=each.body.subject, queue=each.queue)

    def sealed(self, id: UUID, type: str, text: str) -> str:
        return text if self.keys is None else self.keys.seal(id, type, text)

    def opened(self, id: UUID, type: str, text: str) -> str:
        if not text.startswith(SEALED):
            return text
        if self.keys is None:
            raise BodySealed(f"The body of request {id} is sealed and this process has no keys.")
        return self.keys.open(id, type, text)


def hook(
    app: Application,
    kind: RequestKind[Any, Any],
    happening: Happening,
    function: Callable[..., Any],
    options: HookKeywords,
    after: AfterDeath,
    store: Callable[[], Store],
    pen: Pen,
) -> AnyHandler:
    """The handler that calls a hook with its request."""
    queue = hook_queue(kind.name, happening)
    plain = HandlerOptions(name=queue, ordered=False, after_death=after, **options)
    made = declare(app, function, (), plain)
    takes = made.signature
    if not takes.takes_body:
        raise InvalidSettings(f"Hook {queue!r} takes the request: def graded(request: Request) -> None.")

    def whole(body: HookBody) -> Request[Any, Any]:
        return _request(body, kind, store().read(_bodies(body)), pen)

    def blocking(body: HookBody, **context: Any) -> Any:
        return function(whole(body), **context)

    async def awaited(body: HookBody, **context: Any) -> Any:
        return await function(await asyncio.to_thread(whole, body), **context)

    run = awaited if takes.is_async else blocking
    if (breaker := made.own.limits.breaker) is not None:
        run = breaker.guard(run, is_async=takes.is_async, timeout=made.own.limits.timeout)
    return replace(made, signature=replace(takes, decode=_read), own=replace(made.own, run=run))


def _read(text: str) -> HookBody:
    return msgspec.json.decode(text, type=HookBody)


def _bodies(body: HookBody) -> Plan[tuple[requests.Whole | None, requests.Result | None]]:
    whole = yield from requests.show(body.request)
    result = None if body.result is None else (yield from requests.result(body.result))
    return whole, result


def _request(
    body: HookBody,
    kind: RequestKind[Any, Any],
    found: tuple[requests.Whole | None, requests.Result | None],
    pen: Pen,
) -> Request[Any, Any]:
    """The request as it was when the hook was called."""
    whole, result = found
    if whole is None or (body.result is not None and result is None):
        raise Dead(f"Request {body.request} has been removed: it ended longer ago than requests are kept.")
    return Request(
        body.request, body.kind, body.variant, body.subject, RequestState(body.state), body.reason,
        kind.takes(pen.opened(body.request, BODY, whole.body)),
        None if result is None else kind.gives(pen.opened(result.id, RESULT, result.body)),
        body.created_at, body.deadline, body.ended_at, body.timed_out_at, body.received_at, body.accepted_at,
        body.accepted_by, whole.results, whole.late,
    )  # fmt: skip


def request_of(
    kind: RequestKind[Any, Any] | None, whole: requests.Whole, result: requests.Result | None, pen: Pen
) -> Request[Any, Any]:
    """The request as it is now. A kind that is not known here is read as plain JSON."""
    held = whole.held
    takes, gives = (msgspec.json.decode, msgspec.json.decode) if kind is None else (kind.takes, kind.gives)
    return Request(
        held.id, held.kind, held.variant, held.subject, held.state, held.reason,
        takes(pen.opened(held.id, BODY, whole.body)),
        None if result is None else gives(pen.opened(result.id, RESULT, result.body)),
        held.created_at, held.deadline, held.ended_at, held.timed_out_at, whole.received_at, whole.accepted_at,
        whole.accepted_by, whole.results, whole.late,
    )  # fmt: skip


def looked_up(id: UUID) -> Plan[tuple[requests.Whole, requests.Result | None]]:
    """A request with the result that decided."""
    whole = yield from requests.show(id)
    if whole is None:
        raise NotFound(f"There is no request {id}: `holdfast requests list` shows them.")
    result = None if whole.result is None else (yield from requests.result(whole.result))
    return whole, result
