"""PostgreSQL: connections for blocking and for async callers, a wake-up hint, and the errors of a lost connection.

A plan of one statement is one round trip and one implicit transaction; a plan of several gets BEGIN and COMMIT.
Connections are few and kept. After an error a connection is closed, not reused.

Behind a pooler in transaction mode (`?pooler=transaction`) sessions are shared: there are no settings at the
start of a connection, no prepared statements and no LISTEN. Every plan gets BEGIN and COMMIT, and the server's limits
are set at the beginning of each transaction.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

try:
    import psycopg
except ImportError as missing:  # pragma: no cover - shown by a test that hides the driver
    raise ImportError("PostgreSQL needs psycopg: pip install 'holdfast[postgres]'") from missing

from ..clock import Clock
from ..errors import InvalidSettings
from ..model.names import display_url
from ..settings import Settings
from . import installed
from .blocks import is_same_server
from .connecting_postgres import aexecute, execute, is_alive, tune, usable
from .handed_postgres import AsyncHandedOut, HandedOut, is_open
from .migrate import drop_schema, migrate
from .plans import doctor, guards
from .plans.engine_postgres import PostgresEngine
from .refusals import POOLER, STALE, AsOurs, as_ours, cut_off
from .statement import Bound, Plan, Runnable, Statement, adrive, bound, drive, stands_alone
from .text import DEFAULT_SCHEMA

T = TypeVar("T")

IDLE_SPARE = 4  # connections kept beyond those of handlers: exchanges, heartbeats, publishers

# What waits for an answer needs so many rounds of the loop to go on: psycopg waits for the socket in a task of its own.
ROUNDS = 4


class PostgresStore:
    """A PostgreSQL database as a store."""

    has_one_writer = False
    is_embedded = False

    def __init__(
        self,
        url: str,
        settings: Settings,
        clock: Clock,
        schema: str = DEFAULT_SCHEMA,
        *,
        pooled: bool = False,
    ) -> None:
        self.url, self.clock, self.schema, self.pooled = url, clock, schema, pooled
        self.engine = PostgresEngine(schema, settings.errors_kept)
        self._lease = settings.lease
        self._idle: list[HandedOut] = []
        self._aidle: dict[int, list[AsyncHandedOut]] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle_max = settings.connections + IDLE_SPARE
        self._connections = settings.connections
        self._turns = threading.Semaphore(self._connections)
        self._aturns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def now(self) -> datetime | None:
        return self.clock.now()

    # -- running plans

    @property
    def where(self) -> str:
        return display_url(self.url)

    def bound(self, plan: Runnable[T]) -> Bound[T]:
        return bound(plan, self.engine, self.now())

    def run(self, plan: Runnable[T]) -> T:
        """Run a plan in a transaction of its own. A plan that stands alone needs no BEGIN."""
        with self._connection() as connection:
            if stands_alone(plan) and not self.pooled:
                return drive(self.bound(plan), lambda s: execute(connection, s))
            with self._begun(connection):
                return drive(self.bound(plan), lambda s: execute(connection, s))

    read = run

    async def arun(self, plan: Runnable[T]) -> T:
        async with self._aconnection() as connection:
            if stands_alone(plan) and not self.pooled:
                return await adrive(self.bound(plan), lambda s: aexecute(connection, s))
            async with self._abegun(connection):
                return await adrive(self.bound(plan), lambda s: aexecute(connection, s))

    aread = arun

    async def give_way(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(0)

    @contextmanager
    def _begun(self, connection: HandedOut) -> Iterator[None]:
        with connection.transaction():
            if self.pooled:
                execute(connection, self._guards())
            yield

    @asynccontextmanager
    async def _abegun(self, connection: AsyncHandedOut) -> AsyncIterator[None]:
        async with connection.transaction():
            if self.pooled:
                await aexecute(connection, self._guards())
            yield

    def _guards(self) -> Statement:
        return self.engine.bind(guards.set_limits(self._lease), self.now())

    @contextmanager
    def _connection(self, translate: AsOurs | None = None) -> Iterator[HandedOut]:
        connection = self._take()
        try:
            if connection is None:
                connection = HandedOut.connect(self.url, autocommit=True, **self._options())
                tune(connection, self.pooled)
                if self.pooled:
                    connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            yield connection
        except psycopg.Error as error:
            if connection is not None and error.sqlstate in STALE:
                connection.close()
            raise (translate or as_ours)(error, self.schema) from error
        finally:
            if connection is not None:
                with self._lock:
                    if usable(connection) and len(self._idle) < self._idle_max and self._pid == os.getpid():
                        self._idle.append(connection)
                        connection = None
                if connection is not None:
                    connection.close()

    def _take(self) -> HandedOut | None:
        with self._lock:
            self._forget_after_fork()
            while self._idle:
                if is_alive(connection := self._idle.pop()):
                    return connection
                connection.close()
            return None

    @asynccontextmanager
    async def _aconnection(self, translate: AsOurs | None = None) -> AsyncIterator[AsyncHandedOut]:
        # Async connections belong to the loop in which they were made.
        loop = id(asyncio.get_running_loop())
        with self._lock:
            self._forget_after_fork()
            idle = self._aidle.setdefault(loop, [])
            connection = idle.pop() if idle else None
        try:
            if connection is not None and not is_alive(connection):
                await connection.close()
                connection = None
            if connection is None:
                connection = await AsyncHandedOut.connect(self.url, autocommit=True, **self._options())
                tune(connection, self.pooled)
                if self.pooled:
                    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            yield connection
        except psycopg.Error as error:
            if connection is not None and error.sqlstate in STALE:
                await connection.close()
            raise (translate or as_ours)(error, self.schema) from error
        finally:
            if connection is not None:
                # After `close` its list is another one, and nothing would close the connection.
                with self._lock:
                    is_kept = (
                        usable(connection) and len(idle) < self._idle_max and self._aidle.get(loop) is idle
                    )
                    if is_kept:
                        idle.append(connection)
                if not is_kept:
                    with suppress(psycopg.Error):
                        await connection.close()

    def _forget_after_fork(self) -> None:
        # A socket shared with the parent would mix up both conversations; the parent closes it.
        if self._pid != os.getpid():
            self._idle, self._aidle = [], {}
            self._turns, self._aturns = threading.Semaphore(self._connections), WeakKeyDictionary()
            self._pid = os.getpid()

    def _options(self) -> dict[str, Any]:
        """Limits that only the server can enforce: a stopped worker must not keep a transaction open for ever."""
        lease_ms = int(self._lease * 1000)
        settings = {
            "idle_in_transaction_session_timeout": lease_ms,
            "lock_timeout": lease_ms,
            "statement_timeout": lease_ms * 2,
            "default_transaction_isolation": r"read\ committed",  # claims need new snapshots
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
            "timezone": "UTC",
        }
        ours = " ".join(f"-c {name}={value}" for name, value in settings.items())
        given = psycopg.conninfo.conninfo_to_dict(self.url)
        defaults = {
            "application_name": "holdfast",
            "keepalives": 1,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": lease_ms,
            "connect_timeout": 10,
        }
        chosen = {name: value for name, value in defaults.items() if name not in given}
        if self.pooled:
            return chosen
        return {**chosen, "options": f"{given.get('options') or ''} {ours}".strip()}

    # -- hints

    async def wait(self, seconds: float, woken: asyncio.Event) -> bool:
        """Return after so many seconds, or earlier when woken. Commits are announced to `listen`."""
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            pass
        return False

    async def listen(self, woken: asyncio.Event, due: asyncio.Event) -> None:
        """Wake whenever a message is announced. Only a hint: polling finds what it misses."""
        if self.pooled:
            await asyncio.Event().wait()
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self.url, autocommit=True, **self._options()
                )
                async with connection:
                    await connection.execute("listen holdfast")
                    async for each in connection.notifies():
                        if each.payload == "due":
                            due.set()
                        woken.set()
            except psycopg.Error:
                await asyncio.sleep(1.0)

    # -- a handler's own transaction

    def turn(self) -> threading.Semaphore:
        """Wait for a free transaction: more at once would only use up the server's connections."""
        with self._lock:
            self._forget_after_fork()
            return self._turns

    def aturn(self) -> asyncio.Semaphore:
        with self._lock:
            self._forget_after_fork()
            loop = asyncio.get_running_loop()
            return self._aturns.setdefault(loop, asyncio.Semaphore(self._connections))

    @contextmanager
    def transaction(self) -> Iterator[tuple[HandedOut, Callable[[Runnable[Any]], Any]]]:
        """A transaction of a handler. Errors of its own statements are raised unchanged, except a lost connection."""

        def run(plan: Runnable[Any]) -> Any:
            connection.take_back()
            connection.guard.take_back(is_open(connection))
            try:
                return drive(self.bound(plan), lambda s: execute(connection, s))
            except psycopg.Error as error:
                raise as_ours(error, self.schema) from error

        with self._connection(cut_off) as connection:
            try:
                with self._begun(connection):
                    connection.hand_out()
                    try:
                        yield connection, run
                    except psycopg.Rollback as error:  # psycopg would end the block without an error
                        raise connection.guard.refuse_during("psycopg.Rollback", None) from error
                    if not connection.guard.is_ours:  # nothing of the engine's was executed in it
                        connection.guard.take_back(is_open(connection))
            finally:
                connection.take_back()

    @asynccontextmanager
    async def atransaction(
        self,
    ) -> AsyncIterator[tuple[AsyncHandedOut, Callable[[Runnable[Any]], Awaitable[Any]]]]:
        async def run(plan: Runnable[Any]) -> Any:
            connection.take_back()
            connection.guard.take_back(is_open(connection))
            try:
                return await adrive(self.bound(plan), lambda s: aexecute(connection, s))
            except psycopg.Error as error:
                raise as_ours(error, self.schema) from error

        async with self._aconnection(cut_off) as connection:
            try:
                async with self._abegun(connection):
                    connection.hand_out()
                    try:
                        yield connection, run
                    except psycopg.Rollback as error:
                        raise connection.guard.refuse_during("psycopg.Rollback", None) from error
                    if not connection.guard.is_ours:  # nothing of the engine's was executed in it
                        connection.guard.take_back(is_open(connection))
            finally:
                connection.take_back()

    # -- life

    def migration(self) -> Plan[list[int]]:
        return migrate("postgres", self.schema)

    def migrate(self) -> list[int]:
        return self.run(self.migration())

    def drop(self) -> None:
        self.run(drop_schema(self.schema))

    def elsewhere(self) -> Plan[str | None]:
        """Not known: one database has many addresses."""
        yield from ()
        return None

    def is_named_by(self, settings: Mapping[str, Any]) -> bool:
        given = psycopg.conninfo.conninfo_to_dict(self.url)
        host, port, name = (str(given.get(key) or "") for key in ("host", "port", "dbname"))
        return is_same_server(host, port, name, settings)

    def is_prepared(
        self,
        subscriptions: Mapping[str, Sequence[str]],
        unordered: Collection[str],
        renamed: Mapping[str, str],
    ) -> bool:
        """Called only where there is one writer."""
        return False

    def check(self) -> None:
        """Refuse a database without our tables, or with those of a version that this release does not work with."""

        installed.check(*self.run(doctor.version()))
        self._check_guards()

    def _check_guards(self) -> None:
        """Refuse a pooler that drops the settings of a connection: a stopped worker would keep its locks for ever."""
        if 0 in self.run(guards.limits()).values():
            raise InvalidSettings(
                "The settings of this connection did not reach the server: there is a pooler such as PgBouncer in "
                f"between that drops them. {POOLER}"
            )

    def close(self) -> None:
        """Close unused connections, including those that async code left behind: its loop may have ended."""
        with self._lock:
            self._forget_after_fork()
            connections, self._idle = self._idle, []
            left, self._aidle = [each for idle in self._aidle.values() for each in idle], {}
        for connection in connections:
            connection.close()
        for each in left:
            each.pgconn.finish()

    async def aclose(self) -> None:
        loop = id(asyncio.get_running_loop())
        with self._lock:
            connections = self._aidle.pop(loop, [])
        for connection in connections:
            with suppress(psycopg.Error):
                await connection.close()
        self.close()
