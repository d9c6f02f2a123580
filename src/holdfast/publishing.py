"""Publishing: messages are checked, encoded and stored, in the caller's transaction or in one of their own.

Before the first message the subscriptions of the application's handlers are stored, so that its messages find
them. On SQLite, where the caller may hold the only write lock, tables and subscriptions are made on its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from msgspec import structs

from .bodies.drafts import draft
from .bodies.keys import SEALED, Keys
from .errors import InvalidMessage, UsageError
from .handlers.registry import Handlers
from .model.message import Dedupe, NewMessage, Published
from .model.names import family_of
from .settings import Settings
from .store import Store
from .store.blocks import django_blocks
from .store.handles import Handle
from .store.plans import engine, queries
from .store.recognise import recognise
from .store.statement import Plan, Runnable
from .telemetry.logs import Log

if TYPE_CHECKING:
    from .telemetry.tracing import Tracing

T = TypeVar("T")
log = Log("holdfast")


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
        self.made: Callable[[NewMessage], None] | None = (
            None  # hears of each message, before it is sealed: in tests
        )
        self.require_on = False
        self._named: set[str] = set()  # queues of other applications, looked up once
        self._has_warned_of_blocks = False
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
        if self.made is not None:
            self.made(message)
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
                self.refuse_without_on(drafts[0].type, "publish")
                self.subscribe()
                published = self.store.run(engine.append(drafts, place=True))
            else:
                handle = recognise(on)
                plan = self._in(handle, engine.append(drafts))
                if not self.is_subscribed and not self.store.has_one_writer:
                    self.subscribe()
                published = handle.run(self.store.bound(plan), verb="publish")
        if unknown := self._unknown_queues(drafts):
            self._warn(unknown, self.store.read(queries.queue_names()))
        return published

    async def apublish(self, drafts: list[NewMessage], on: object) -> list[Published]:
        """Like `publish`, for async code and async connections or sessions."""
        with self._sending(drafts):
            if on is None:
                self.refuse_without_on(drafts[0].type, "publish")
                if not self.is_subscribed:
                    await asyncio.to_thread(self.subscribe)
                published = await self.store.arun(engine.append(drafts, place=True))
            else:
                handle = recognise(on)
                plan = self._in(handle, engine.append(drafts))
                if not self.is_subscribed and not self.store.has_one_writer:
                    await asyncio.to_thread(self.subscribe)
                published = await handle.arun(self.store.bound(plan), verb="apublish")
        if unknown := self._unknown_queues(drafts):
            self._warn(unknown, await asyncio.to_thread(self.store.read, queries.queue_names()))
        return published

    # -- what is probably a mistake

    def refuse_without_on(self, what: str, verb: str) -> None:
        """A publish in a transaction of its own, where `on=` may have been forgotten.

        `verb` is the method that was called.
        """
        if self.require_on:
            raise UsageError(
                f"Nothing was stored: {what} was published without on=, and {self.who} has require_on=True. "
                f"Give your connection or session, {verb}(..., on=session), so that both are committed together."
            )
        if self._has_warned_of_blocks:
            return
        if any(self.store.is_named_by(each) for each in django_blocks()):
            self._has_warned_of_blocks = True
            log.warning(
                "publish.outside_transaction",
                "%(type)s was published without on= inside an atomic block of Django on the same database: the message "
                "stays when the block is rolled back. Write %(verb)s(..., on=django.db.connection). Reported once.",
                type=what,
                verb=verb,
            )

    def _unknown_queues(self, drafts: list[NewMessage]) -> set[str]:
        """Queues that were named and that are not known here; each is reported once."""
        return {
            each.queue
            for each in drafts
            if each.queue is not None and each.queue not in self._named and each.queue not in self.handlers
        }

    def _warn(self, queues: set[str], there: set[str]) -> None:
        for queue in sorted(queues):
            self._named.add(queue)
            if queue not in there and family_of(queue, there) is None:
                log.warning(
                    "queue.unknown",
                    "A message was published to queue %(queue)s, which no handler has: it waits there. The queues are: "
                    "%(queues)s",
                    queue=queue,
                    queues=", ".join(sorted(there)) or "none",
                )

    def store_with(self, plan: Callable[[], Runnable[T]], on: object, *, verb: str = "publish") -> T:
        """Run another plan that stores messages, as `publish` does: in the caller's transaction or in its own.

        `verb` is what the caller called, for the texts of errors.
        """
        if on is None:
            self.subscribe()
            return self.store.run(plan())
        handle = recognise(on)
        made = self._in(handle, plan())
        if not self.is_subscribed and not self.store.has_one_writer:
            self.subscribe()
        return handle.run(self.store.bound(made), verb=verb)

    async def astore_with(self, plan: Callable[[], Runnable[T]], on: object, *, verb: str = "apublish") -> T:
        if on is None:
            if not self.is_subscribed:
                await asyncio.to_thread(self.subscribe)
            return await self.store.arun(plan())
        handle = recognise(on)
        made = self._in(handle, plan())
        if not self.is_subscribed and not self.store.has_one_writer:
            await asyncio.to_thread(self.subscribe)
        return await handle.arun(self.store.bound(made), verb=verb)

    def _sending(self, drafts: list[NewMessage]) -> AbstractContextManager[object]:
        return _NOTHING if self.tracing is None else self.tracing.sending(drafts)

    def _in(self, handle: Handle, plan: Runnable[T]) -> Runnable[T]:
        ours = self.store.engine.dialect
        if handle.dialect != ours:
            raise UsageError(
                f"{self.who} lives in {ours} and was given a handle of {handle.dialect} ({handle.kind}): "
                "publish with a connection to the same database."
            )
        return self._prepared(plan, handle) if self.store.has_one_writer else plan

    def _prepared(self, plan: Runnable[T], handle: Handle) -> Plan[T]:
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
        # Made in the caller's transaction, they may be rolled back with it: only committed ones count.
        if not self.is_subscribed and store.is_prepared(
            self.handlers.subscriptions(), self.handlers.unordered(), self.handlers.renamed
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
        self.forget_subscriptions()
        self.subscribe()

    def forget_subscriptions(self) -> None:
        """A handler was declared again: its subscriptions are stored before the next publish."""
        self._stored = None

    @property
    def is_subscribed(self) -> bool:
        # Handlers are only added, and one may be while others are stored: it is not counted as stored then.
        return self._stored == len(self.handlers)

    def _subscription(self) -> Plan[int]:
        return engine.subscribe(
            self.handlers.subscriptions(), self.handlers.unordered(), self.handlers.renamed
        )


_NOTHING = nullcontext()
