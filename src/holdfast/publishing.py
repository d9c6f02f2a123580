"""Publishing: messages are checked, encoded and stored, in the caller's transaction or in one of their own.

Before the first of them the subscriptions of the application's handlers are stored, so that what it publishes finds
them. On SQLite, where the caller may hold the only write lock, tables and subscriptions are made on its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import structs

from .bodies.drafts import draft
from .bodies.keys import SEALED, Keys
from .errors import InvalidMessage, UsageError
from .handlers.registry import Handlers
from .model.message import Dedupe, NewMessage, Published
from .settings import Settings
from .store import Store
from .store.handles import Handle
from .store.plans import engine
from .store.recognise import recognise
from .store.statement import Plan, Runnable

if TYPE_CHECKING:
    from .telemetry.tracing import Tracing


class Publishing:
    """Stores messages for one application, in one database. `who` is the application, for the texts of errors."""

    def __init__(
        self,
        who: str,
        store: Store,
        handlers: Handlers,
        settings: Settings,
        keys: Keys | None,
        tracing: Tracing | None,
    ) -> None:
        self.who, self.store, self.handlers, self.settings = who, store, handlers, settings
        self.keys, self.tracing = keys, tracing
        self._stored: int | None = None  # how many handlers had their subscriptions stored

    def message(
        self, type: str, body: object = None, *,
        stream: str | None = None, subject: str | None = None, headers: Mapping[str, Any] | None = None,
        dedupe: str | Dedupe | None = None, delay: float | timedelta | None = None, at: datetime | None = None,
        deadline: datetime | timedelta | None = None, queue: str | None = None, id: UUID | None = None,
        event: bool = False, expect: int | None = None,
    ) -> NewMessage:  # fmt: skip
        """A message, checked, encoded and, with keys, sealed."""
        if self.tracing is not None:
            id, headers = self.tracing.created(type, id, stream, headers)
        message = draft(
            self.settings, type, body,
            stream=stream, subject=subject, headers=headers, dedupe=dedupe, delay=delay, at=at, deadline=deadline,
            queue=queue, id=id, event=event, expect=expect,
        )  # fmt: skip
        if self.keys is not None:
            return structs.replace(message, body=self.keys.seal(message.id, message.type, message.body))
        if message.body.startswith(SEALED):
            raise InvalidMessage(
                f"The body cannot be stored: its first key is {SEALED[2:-2]!r}, which marks bodies that are encrypted. "
                "Use another."
            )
        return message

    def publish(self, drafts: list[NewMessage], on: object) -> list[Published]:
        """Store messages, in one statement."""
        with self._sending(drafts):
            if on is None:
                self.subscribe()
                return self.store.run(engine.append(drafts, place=True))
            handle = recognise(on)
            plan = self._plan_in(handle, drafts)
            if not self.is_subscribed and not self.store.has_one_writer:
                self.subscribe()
            return handle.run(self.store.bound(plan), verb="publish")

    async def apublish(self, drafts: list[NewMessage], on: object) -> list[Published]:
        """Like `publish`, for async code and async connections or sessions."""
        with self._sending(drafts):
            if on is None:
                if not self.is_subscribed:
                    await asyncio.to_thread(self.subscribe)
                return await self.store.arun(engine.append(drafts, place=True))
            handle = recognise(on)
            plan = self._plan_in(handle, drafts)
            if not self.is_subscribed and not self.store.has_one_writer:
                await asyncio.to_thread(self.subscribe)
            return await handle.arun(self.store.bound(plan), verb="apublish")

    def _sending(self, drafts: list[NewMessage]) -> AbstractContextManager[object]:
        return _NOTHING if self.tracing is None else self.tracing.sending(drafts)

    def _plan_in(self, handle: Handle, drafts: list[NewMessage]) -> Runnable[list[Published]]:
        ours = self.store.engine.dialect
        if handle.dialect != ours:
            raise UsageError(
                f"{self.who} lives in {ours} and was given a handle of {handle.dialect} ({handle.kind}): "
                "publish with a connection to the same database."
            )
        plan = engine.append(drafts)
        return self._prepared(plan, handle) if self.store.has_one_writer else plan

    def _prepared(self, plan: Runnable[list[Published]], handle: Handle) -> Plan[list[Published]]:
        # The caller holds the only write lock, so tables and subscriptions are made on its connection too.
        yield from self._prepare(handle)
        return (yield from plan)

    def _prepare(self, handle: Handle) -> Plan[None]:
        store = self.store
        if (elsewhere := (yield from store.elsewhere())) is not None:
            raise UsageError(
                f"Nothing was stored: {self.who} works on {store.where} and was given a handle ({handle.kind}) on "
                f"{elsewhere}, where no worker would find the message. Connect to the same file."
            )
        count = len(self.handlers)
        # Made in the caller's transaction, they may be rolled back with it: what counts is what is committed.
        if not self.is_subscribed and store.is_prepared(
            self.handlers.subscriptions(), self.handlers.unordered()
        ):
            self._stored = count
        if not self.is_subscribed:
            yield from store.migration()
            yield from self._subscription()

    # -- subscriptions

    def subscribe(self) -> None:
        """Store the subscriptions of this application's handlers, so that what it publishes finds them."""
        if self.is_subscribed:
            return
        count = len(self.handlers)
        if self.store.is_embedded:
            self.store.migrate()
        self.store.run(self._subscription())
        self._stored = count

    def subscribe_anew(self) -> None:
        """The same after a migration, whatever was stored before."""
        self._stored = None
        self.subscribe()

    @property
    def is_subscribed(self) -> bool:
        # Handlers are only added, and one may be while others are stored: it is not counted as stored then.
        return self._stored == len(self.handlers)

    def _subscription(self) -> Plan[int]:
        return engine.subscribe(self.handlers.subscriptions(), self.handlers.unordered())


_NOTHING = nullcontext()
