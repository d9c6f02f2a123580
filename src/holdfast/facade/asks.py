"""Requests with deadlines: asking, and answering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload
from uuid import UUID

from .parts import Parts

if TYPE_CHECKING:
    from ..requests.kinds import Answer, Asked, RequestKind, Resolved

B = TypeVar("B")
R = TypeVar("R")
Sla = float | timedelta | Mapping[str, float | timedelta]


class Asks(Parts, Protocol):
    """`app.request` and what belongs to it."""

    @overload
    def request_kind(
        self, name: str, *, sla: Sla, soft: float | None = None, answer: Callable[[Any], Answer | None] | None = None,
    ) -> RequestKind[Any, Any]: ...  # fmt: skip
    @overload
    def request_kind(
        self, name: str, *, sla: Sla, soft: float | None = None, answer: Callable[[Any], Answer | None] | None = None,
        takes: type[B], gives: type[R],
    ) -> RequestKind[B, R]: ...  # fmt: skip
    def request_kind(
        self, name: str, *, sla: Sla | None = None, soft: float | None = None,
        answer: Callable[[Any], Answer | None] | None = None, takes: Any = None, gives: Any = None,
    ) -> RequestKind[Any, Any]:  # fmt: skip
        """A kind of request: `app.request_kind("grading", sla={"writing": 1200, "speaking": 3600}, soft=0.75)`.

        `sla`: how many seconds an answer may take, for each variant or for all. `soft`: the part of that time after
        which the delay is reported. `answer` finds the request to which a message of an inbox is the result. `takes`
        and `gives` are the types of the request's body and of its result, for hooks (docs/requests.md).
        """
        return self.requests.kind(name, sla, soft, answer, takes, gives)

    def request(
        self, kind: RequestKind[B, Any], body: B, *, on: object = None, variant: str | None = None,
        send: str | None = None, subject: str | None = None, stream: str | None = None,
        headers: Mapping[str, Any] | None = None, queue: str | None = None, id: UUID | None = None,
        deadline: datetime | None = None, within: float | timedelta | None = None,
    ) -> Asked:  # fmt: skip
        """Store a request with its deadline, and send a message of the type `send` with the same body and id.

        Both in your own transaction when `on` is your connection or session. `deadline` and `within` override the
        sla of the kind. With an `id` of yours, a second request with it is not stored and nothing is sent.
        """
        return self.requests.open(
            kind, body, variant=variant, send=send, subject=subject, stream=stream, headers=headers, queue=queue, id=id,
            deadline=deadline, within=within, on=on,
        )  # fmt: skip

    async def arequest(
        self, kind: RequestKind[B, Any], body: B, *, on: object = None, variant: str | None = None,
        send: str | None = None, subject: str | None = None, stream: str | None = None,
        headers: Mapping[str, Any] | None = None, queue: str | None = None, id: UUID | None = None,
        deadline: datetime | None = None, within: float | timedelta | None = None,
    ) -> Asked:  # fmt: skip
        """Like `request`, for async code and async connections or sessions."""
        return await self.requests.aopen(
            kind, body, variant=variant, send=send, subject=subject, stream=stream, headers=headers, queue=queue, id=id,
            deadline=deadline, within=within, on=on,
        )  # fmt: skip

    def resolve(
        self, id: UUID | str, result: object = None, *, failed: str | None = None, on: object = None
    ) -> Resolved:
        """Store the result of a request, in your own transaction when `on` is your connection or session.

        The first one in time decides; with `failed`, the error of the other side, the request has failed. A late or a
        second result is kept and changes nothing.
        """
        return self.requests.resolve(id, result, failed, on)

    async def aresolve(
        self, id: UUID | str, result: object = None, *, failed: str | None = None, on: object = None
    ) -> Resolved:
        """Like `resolve`, for async code and async connections or sessions."""
        return await self.requests.aresolve(id, result, failed, on)
