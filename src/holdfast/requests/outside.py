"""Requests as an application uses them: in its own transaction where one is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from ..bodies import codec
from ..errors import InvalidMessage, InvalidSettings, NotFound, UsageError
from ..handlers.declare import Application, is_declared_again
from ..handlers.registry import Handlers
from ..model import names
from ..model.ids import new_id
from ..model.message import NewMessage
from ..model.request import Happening
from ..rules import aftermath
from ..rules.describing import storable
from ..settings import Settings
from ..store import Store
from ..store.statement import Runnable
from . import verbs
from .hooks import BODY, RESULT, Pen, hook, looked_up, request_of
from .kinds import (
    Answer,
    Asked,
    HookKeywords,
    Request,
    RequestKind,
    Resolved,
    decoder,
    default_answer,
    duration,
    kind_name,
    service_levels,
    soft_threshold,
)
from .verbs import Arrival, Decided, Opening

T = TypeVar("T")


class Storing(Protocol):
    """Makes messages, and runs plans in the caller's transaction or in one of their own."""

    def message(
        self, type: str, body: object = None, *, stream: str | None = None, subject: str | None = None,
        headers: Mapping[str, Any] | None = None, queue: str | None = None, id: UUID | None = None,
    ) -> NewMessage: ...  # fmt: skip
    def refuse_without_on(self, what: str, verb: str) -> None: ...
    def store_with(self, plan: Callable[[], Runnable[T]], on: object, *, verb: str) -> T: ...
    async def astore_with(self, plan: Callable[[], Runnable[T]], on: object, *, verb: str) -> T: ...


class Home(Application, Protocol):
    """What is needed of an application."""

    @property
    def handlers(self) -> Handlers: ...


class Requests:
    """The requests of an application: `app.requests`. Those that begin with `a` are for async code and handles."""

    def __init__(
        self,
        app: Home,
        store: Callable[[], Store],
        storing: Callable[[], Storing],
        settings: Settings,
        pen: Pen,
    ) -> None:
        self._app, self._store, self._storing = app, store, storing
        self.settings, self.pen = settings, pen
        self.kinds: dict[str, RequestKind[Any, Any]] = {}

    # -- declaring

    def kind(
        self, name: str, sla: object, soft: float | None, answer: Callable[[Any], Answer | None] | None,
        takes: Any, gives: Any,
    ) -> RequestKind[Any, Any]:  # fmt: skip
        checked = kind_name(name)
        if checked in self.kinds:
            raise InvalidSettings(
                f"There is already a kind of request named {checked!r}: give one of them another name."
            )
        made: RequestKind[Any, Any] = RequestKind(
            checked, service_levels(checked, sla), soft_threshold(checked, soft), answer or default_answer,
            decoder(takes), decoder(gives), self._declare,
        )  # fmt: skip
        self.kinds[checked] = made
        return made

    def _declare(
        self,
        kind: RequestKind[Any, Any],
        happening: Happening,
        function: Callable[..., Any],
        options: HookKeywords,
    ) -> None:
        handlers = self._app.handlers
        after = aftermath.AfterDeath(has_hook=aftermath.HOOK_QUEUE in handlers)
        made = hook(self._app, kind, happening, function, options, after, self._store, self.pen)
        if is_declared_again(handlers.get(made.queue), made):
            handlers.put(made)
        else:
            handlers.add(made)

    # -- asking

    def open(
        self, kind: RequestKind[Any, Any], body: object, *, variant: str | None, send: str | None, subject: str | None,
        stream: str | None, headers: Mapping[str, Any] | None, queue: str | None, id: UUID | None,
        deadline: datetime | None, within: float | timedelta | None, on: object,
    ) -> Asked:  # fmt: skip
        if on is None:
            self._storing().refuse_without_on(f"a request of kind {kind.name}", "request")
        opening = self._opening(
            kind, body, variant, send, subject, stream, headers, queue, id, deadline, within
        )
        is_new, until = self._storing().store_with(lambda: verbs.open_(opening, self.pen), on, verb="request")
        return Asked(opening.id, until, duplicate=not is_new)

    async def aopen(
        self, kind: RequestKind[Any, Any], body: object, *, variant: str | None, send: str | None, subject: str | None,
        stream: str | None, headers: Mapping[str, Any] | None, queue: str | None, id: UUID | None,
        deadline: datetime | None, within: float | timedelta | None, on: object,
    ) -> Asked:  # fmt: skip
        if on is None:
            self._storing().refuse_without_on(f"a request of kind {kind.name}", "request")
        opening = self._opening(
            kind, body, variant, send, subject, stream, headers, queue, id, deadline, within
        )
        is_new, until = await self._storing().astore_with(
            lambda: verbs.open_(opening, self.pen), on, verb="arequest"
        )
        return Asked(opening.id, until, duplicate=not is_new)

    def _opening(
        self, kind: RequestKind[Any, Any], body: object, variant: str | None, send: str | None, subject: str | None,
        stream: str | None, headers: Mapping[str, Any] | None, queue: str | None, id: UUID | None,
        deadline: Any, within: float | timedelta | None,
    ) -> Opening:  # fmt: skip
        """The request and its message, checked: what is wrong is refused before anything is stored."""
        if self.kinds.get(getattr(kind, "name", "")) is not kind:
            raise UsageError(
                f"{kind!r} is not a kind of request of this application: give what app.request_kind(...) returned."
            )
        if variant is not None:
            names.text(variant, "The variant", 200)
        if deadline is not None and within is not None:
            raise InvalidMessage("Give deadline= or within=, not both.")
        if deadline is not None and (not isinstance(deadline, datetime) or deadline.tzinfo is None):
            raise InvalidMessage(
                f"deadline={deadline!r} must be a datetime with a time zone: datetime.now(UTC) + ..."
            )
        takes = None
        if within is not None:
            takes = duration(within, "within", InvalidMessage)
        elif deadline is None:
            takes = kind.within(variant)
        if send is None and (stream is not None or headers is not None or queue is not None):
            raise InvalidMessage(
                "stream=, headers= and queue= are for the message: give its type too, send=."
            )
        message = None
        if send is not None:
            message = self._storing().message(
                send, body, stream=stream, subject=subject, headers=headers, queue=queue, id=id
            )
        own = message.id if message is not None else new_id() if id is None else request_id(id)
        return Opening(
            own, kind.name, variant, None if subject is None else names.subject(subject),
            self.pen.sealed(own, BODY, codec.encode(body, self.settings)),
            takes, None if deadline is None else deadline.astimezone(UTC), kind.soft, message,
        )  # fmt: skip

    # -- answering

    def resolve(self, id: UUID | str, result: object, failed: str | None, on: object) -> Resolved:
        arrival = self.arrival(id, result, failed)
        (found,) = self._storing().store_with(lambda: verbs.resolve([arrival], self.pen), on, verb="resolve")
        return resolved(arrival, found)

    async def aresolve(self, id: UUID | str, result: object, failed: str | None, on: object) -> Resolved:
        arrival = self.arrival(id, result, failed)
        (found,) = await self._storing().astore_with(
            lambda: verbs.resolve([arrival], self.pen), on, verb="aresolve"
        )
        return resolved(arrival, found)

    def arrival(
        self,
        id: UUID | str,
        result: object,
        failed: str | None,
        source: UUID | None = None,
        kind: str | None = None,
    ) -> Arrival:
        """A result that came in, checked and sealed."""
        own = new_id()
        failed_as = None if failed is None else failure(failed, self.settings.error_chars)
        body = self.pen.sealed(own, RESULT, codec.encode(result, self.settings))
        return Arrival(own, request_id(id), failed_as, body, source, kind)

    # -- the rest of its life

    def extend(self, id: UUID | str, by: float | timedelta, *, on: object = None) -> datetime:
        """Give an open request more time, in seconds or as a timedelta; its new deadline.

        Refused if it has ended or its deadline has passed.
        """
        own, longer = request_id(id), duration(by, "by", InvalidMessage)
        return self._storing().store_with(lambda: verbs.extend(own, longer), on, verb="extend")

    async def aextend(self, id: UUID | str, by: float | timedelta, *, on: object = None) -> datetime:
        """Like `extend`, for async code and async connections or sessions."""
        own, longer = request_id(id), duration(by, "by", InvalidMessage)
        return await self._storing().astore_with(lambda: verbs.extend(own, longer), on, verb="aextend")

    def cancel(self, id: UUID | str, why: str | None = None, *, on: object = None) -> None:
        """End an open request: its result is not waited for any more. The hook for failed ones is called.

        Refused if it has ended or its deadline has passed.
        """
        own, said = request_id(id), None if why is None else failure(why, self.settings.error_chars)
        self._storing().store_with(lambda: verbs.cancel(own, said, self.pen), on, verb="cancel")

    async def acancel(self, id: UUID | str, why: str | None = None, *, on: object = None) -> None:
        """Like `cancel`, for async code and async connections or sessions."""
        own, said = request_id(id), None if why is None else failure(why, self.settings.error_chars)
        await self._storing().astore_with(lambda: verbs.cancel(own, said, self.pen), on, verb="acancel")

    def get(self, id: UUID | str) -> Request[Any, Any]:
        """A request with the result that decided; NotFound if there is none."""
        whole, result = self._store().read(looked_up(request_id(id)))
        return request_of(self.kinds.get(whole.held.kind), whole, result, self.pen)

    async def aget(self, id: UUID | str) -> Request[Any, Any]:
        """Like `get`, for async code."""
        whole, result = await self._store().arun(looked_up(request_id(id)))
        return request_of(self.kinds.get(whole.held.kind), whole, result, self.pen)


def request_id(value: object) -> UUID:
    if type(value) is UUID:
        return value
    try:
        return UUID(str(value))
    except ValueError:
        raise InvalidMessage(f"{value!r} is not the id of a request, which is a UUID.") from None


def failure(given: object, chars: int) -> str:
    """What the other side said, as it can be stored."""
    text = storable(" ".join(given.split()), chars) if isinstance(given, str) else ""
    if not text:
        raise InvalidMessage(f"failed={given!r} must be a text that says what went wrong.")
    return text


def resolved(arrival: Arrival, found: Decided | None) -> Resolved:
    if found is None:
        raise NotFound(f"There is no request {arrival.request}: its result was not stored.")
    return Resolved(arrival.request, found.standing, found.received_at, found.state)
