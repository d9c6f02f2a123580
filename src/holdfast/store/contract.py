"""The interface of a store, the same for every database: the rest of the package uses only this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

from ..clock import Clock
from .statement import Bound, Engine, Plan, Runnable

T = TypeVar("T")

Run: TypeAlias = Callable[[Runnable[Any]], Any]
Arun: TypeAlias = Callable[[Runnable[Any]], Awaitable[Any]]


class Store(Protocol):
    """Runs plans on connections of its own, and binds those that run in the caller's transaction.

    `has_one_writer`: an open write transaction blocks all other writers, so everything that a publish needs is done in
    it. `is_embedded`: it needs no setup, its tables are created when they are missing.
    """

    clock: Clock
    has_one_writer: bool
    is_embedded: bool

    @property
    def engine(self) -> Engine[Any]: ...

    @property
    def where(self) -> str:
        """Where the database is, for people."""

    def run(self, plan: Runnable[T]) -> T:
        """Run a plan in a transaction of its own and block until it is committed."""

    async def arun(self, plan: Runnable[T]) -> T: ...

    def read(self, plan: Runnable[T]) -> T:
        """Run a plan that only reads."""

    async def aread(self, plan: Runnable[T]) -> T:
        """The same in a running loop. A plan that reads little: it may block the loop."""

    async def give_way(self) -> None:
        """Called between two pieces of work on the loop: what waits for the database, or is stored now, goes on."""

    def bound(self, plan: Runnable[T]) -> Bound[T]:
        """The plan in the SQL of this database, at this time: for a handle of the caller."""

    # -- a handler's own transaction

    def turn(self) -> AbstractContextManager[Any]: ...

    def aturn(self) -> AbstractAsyncContextManager[Any]: ...

    def transaction(self) -> AbstractContextManager[tuple[Any, Run]]: ...

    def atransaction(self) -> AbstractAsyncContextManager[tuple[Any, Arun]]: ...

    # -- hints

    async def wait(self, seconds: float, woken: asyncio.Event) -> bool:
        """Return after so many seconds, or earlier when woken or after a commit: then it is True."""

    async def listen(self, woken: asyncio.Event, due: asyncio.Event) -> None:
        """Wake when a message is announced. Set `due` too when something was set to a time that a tick must know."""

    # -- life

    def elsewhere(self) -> Plan[str | None]:
        """The name of the database of the connection that runs this, if it is known to be another one than this."""

    def is_named_by(self, settings: Mapping[str, Any]) -> bool:
        """Whether these settings of Django name this database, if that can be seen."""

    def is_prepared(
        self,
        subscriptions: Mapping[str, Sequence[str]],
        unordered: Collection[str],
        renamed: Mapping[str, str],
    ) -> bool:
        """Whether tables and subscriptions are there and committed, if that can be seen without waiting."""

    def migration(self) -> Plan[list[int]]:
        """The migration to the version of this release; it returns the steps taken."""

    def migrate(self) -> list[int]: ...

    def drop(self) -> None:
        """Remove the schema with everything in it: only for databases that a test made."""

    def check(self) -> None:
        """Refuse a database without our tables, or with those of another version."""

    def close(self) -> None: ...

    async def aclose(self) -> None: ...
