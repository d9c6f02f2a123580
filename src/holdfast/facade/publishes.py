"""Publishing, and reading what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from ..bodies.drafts import given_id, when_due
from ..errors import InvalidMessage
from ..model.message import Dedupe, Event, NewMessage, Published
from ..store.plans import engine, moving
from ..store.statement import Plan
from .parts import Parts


class Publishes(Parts, Protocol):
    """`app.publish` and what belongs to it."""

    def publish(
        self, type: str, body: object = None, *, on: object = None,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> Published:  # fmt: skip
        """Store a message, in your own transaction when `on` is your connection or session.

        `delay`: not before so many seconds, or a timedelta, from now; `at`: not before this moment (aware); `deadline`:
        not started after it. `dedupe`: a second message of this type with the same key is not stored. `event` and
        `expect`: docs/publishing.md. `queue`: for that handler alone.
        """
        message = self.message(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip
        return self.publishing.publish([message], on)[0]

    async def apublish(
        self, type: str, body: object = None, *, on: object = None,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> Published:  # fmt: skip
        """Like `publish`, for async code and async connections or sessions."""
        message = self.message(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip
        return (await self.publishing.apublish([message], on))[0]

    def publish_many(self, messages: Iterable[NewMessage], *, on: object = None) -> list[Published]:
        """Store many messages, made with `app.message(...)`, in one statement."""
        drafts = list(messages)
        return self.publishing.publish(drafts, on) if drafts else []

    async def apublish_many(self, messages: Iterable[NewMessage], *, on: object = None) -> list[Published]:
        drafts = list(messages)
        return await self.publishing.apublish(drafts, on) if drafts else []

    def message(
        self, type: str, body: object = None, *,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> NewMessage:  # fmt: skip
        """A message for `publish_many`, checked and encoded; takes the options of `publish`."""
        return self.publishing.message(
            type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip

    # -- scheduled messages

    def move(
        self,
        id: UUID,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        on: object = None,
    ) -> datetime:
        """Give a scheduled message another time, in your own transaction with `on`; returns it.

        Raises Refused when it has fallen due, and NotFound when there is none.
        """
        moved = self._moved(id, at, delay)
        return self.publishing.store_with(moved, on, verb="move")

    async def amove(
        self,
        id: UUID,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        on: object = None,
    ) -> datetime:
        """Like `move`, for async code and async connections or sessions."""
        moved = self._moved(id, at, delay)
        return await self.publishing.astore_with(moved, on, verb="amove")

    def cancel(self, id: UUID, *, on: object = None) -> None:
        """End a scheduled message without handling it, in your own transaction with `on`.

        Raises Refused when it has fallen due, and NotFound when there is none.
        """
        known = given_id(id)
        self.publishing.store_with(lambda: moving.cancel(known), on, verb="cancel")

    async def acancel(self, id: UUID, *, on: object = None) -> None:
        """Like `cancel`, for async code and async connections or sessions."""
        known = given_id(id)
        await self.publishing.astore_with(lambda: moving.cancel(known), on, verb="acancel")

    def _moved(
        self, id: UUID, at: datetime | None, delay: float | timedelta | None
    ) -> Callable[[], Plan[datetime]]:
        known, (due, seconds) = given_id(id), when_due(at, delay)
        if due is None and seconds is None:
            raise InvalidMessage("Give the new time: at= or delay=.")
        return lambda: moving.move(known, due, seconds)

    def events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The events of a stream after a version, in order."""
        found = self.store.read(engine.read_events(stream, after, limit))
        reveal = self.operations.reveal
        return [replace(each, body=reveal(each.id, each.type, each.body)) for each in found]

    def revealed(self, id: UUID, type: str, body: str) -> str:
        """A stored body as it was published; BodySealed if it is encrypted and our keys do not open it."""
        return self.operations.reveal(id, type, body)
