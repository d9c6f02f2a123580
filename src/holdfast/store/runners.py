"""Plans inside the caller's own transaction: whatever handle a user has, recognised, checked and driven.

A handle is recognised by the names of its classes, so nothing is imported that the user does not have.
Nothing here commits. Either the whole plan is done or, when it fails, nothing of it: PostgreSQL spoils the
transaction by itself, on SQLite a savepoint undoes what the plan had written before it failed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from ..errors import NotInTransaction, NotMigrated, WrongHandle
from .statement import Dialect, Plan, Rows, Statement, Style, adrive, compile, drive

T = TypeVar("T")


class Blocking(Protocol):
    """A connection that answers at once."""

    def check(self) -> None: ...
    def execute(self, statement: Statement) -> Rows: ...
    def in_transaction(self) -> bool: ...


class Asynchronous(Protocol):
    """A connection that is awaited."""

    def check(self) -> None: ...
    async def run(self, plan: Plan[T], dialect: Dialect) -> T: ...


class Handle(msgspec.Struct, frozen=True):
    """A user's connection or session, known by its kind."""

    kind: str
    dialect: Dialect
    connection: Blocking | None = None
    aconnection: Asynchronous | None = None

    @property
    def is_async(self) -> bool:
        return self.aconnection is not None

    def check_transaction(self) -> None:
        """Refuse, without asking the database if that can be avoided, a handle that would commit by itself."""
        if self.connection is not None:
            self.connection.check()
        if self.aconnection is not None:
            self.aconnection.check()

    def run(self, plan: Plan[T], *, verb: str = "publish") -> T:
        """Run the plan in the caller's transaction and block until it is done. `verb` is what the caller called."""
        if self.connection is None:
            raise WrongHandle(
                f"{verb}() blocks and was given an async handle ({self.kind}), so nothing was done: "
                f"write `await a{verb}(...)` with the same arguments."
            )
        self.check_transaction()
        try:
            return perform(plan, self.connection, self.dialect)
        except Exception as error:
            raise_if_not_migrated(error)
            raise

    async def arun(self, plan: Plan[T], *, verb: str = "apublish") -> T:
        """Run the plan in the caller's transaction."""
        if self.aconnection is None:
            raise WrongHandle(
                f"{verb}() was given a blocking handle ({self.kind}), so nothing was done: "
                f"call `{verb.removeprefix('a')}(...)` with the same arguments and no await."
            )
        self.check_transaction()
        try:
            return await self.aconnection.run(plan, self.dialect)
        except Exception as error:
            raise_if_not_migrated(error)
            raise


def perform(plan: Plan[T], connection: Blocking, dialect: Dialect) -> T:
    if dialect == "postgres":
        return drive(plan, connection.execute)
    # A transaction that begins with a read cannot always be made a writing one later (BUSY at once, whatever
    # the timeout), so if none is open yet it begins as a writing one.
    open_already = connection.in_transaction()
    connection.execute(Statement("SAVEPOINT holdfast" if open_already else "BEGIN IMMEDIATE"))
    try:
        result = drive(plan, connection.execute)
    except BaseException:
        try:
            connection.execute(Statement("ROLLBACK TO holdfast" if open_already else "ROLLBACK"))
            if open_already:
                connection.execute(Statement("RELEASE holdfast"))
        except Exception:  # disk full or an interrupt has already rolled everything back
            pass
        raise
    if open_already:
        connection.execute(Statement("RELEASE holdfast"))
    return result


# --- What the drivers have in common, and where they differ -----------------------------------------------------------


def refuse(kind: str, why: str, what_to_do: str) -> NotInTransaction:
    return NotInTransaction(
        f"Nothing was stored: {why}, so on this {kind} the message would be committed apart from your own writes. "
        f"{what_to_do} Or leave out the handle, and it is stored in a transaction of its own."
    )


def commits_each_statement(connection: Any) -> bool:
    automatic = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    return automatic and not connection.in_transaction


@dataclass(frozen=True, slots=True)
class Sqlite:
    connection: sqlite3.Connection
    kind: str = "sqlite3.Connection"

    def check(self) -> None:
        if commits_each_statement(self.connection):
            call = 'await connection.execute("BEGIN IMMEDIATE")'
            raise refuse(
                self.kind,
                "the connection commits each statement (isolation_level=None or autocommit=True)",
                f"Begin one first: `{call if 'aio' in self.kind else call.removeprefix('await ')}`.",
            )

    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def execute(self, statement: Statement) -> Rows:
        # The connection's factories are the user's, made for the user's rows.
        text_factory = self.connection.text_factory
        self.connection.text_factory = str
        try:
            cursor = sqlite3.Cursor(self.connection)
            cursor.row_factory = None
            return cursor.execute(statement.sql, statement.params).fetchall()
        finally:
            self.connection.text_factory = text_factory


@dataclass(frozen=True, slots=True)
class Aiosqlite:
    connection: Any

    def check(self) -> None:
        Sqlite(self.connection, "aiosqlite.Connection").check()

    async def run(self, plan: Plan[T], dialect: Dialect) -> T:
        # The whole plan is one visit to the connection's thread: a cancelled caller cannot leave half of it behind.
        def visit() -> T:
            work = Sqlite(self.connection._conn, "aiosqlite.Connection")
            work.check()  # again, because only in its own thread may a connection be asked for everything
            return perform(plan, work, dialect)

        running: Awaitable[T] = self.connection._execute(visit)
        return await running


def check_psycopg(connection: Any, kind: str, call: str) -> None:
    if not connection.autocommit:
        return
    from psycopg.pq import TransactionStatus

    status = connection.info.transaction_status
    # In a pipeline the answer to BEGIN may be outstanding; then the status says only that something is.
    waiting = status == TransactionStatus.ACTIVE and not getattr(connection, "_num_transactions", 0)
    if status == TransactionStatus.IDLE or waiting:
        raise refuse(
            kind, "the connection is in autocommit mode and no transaction is open", f"Open one: `{call}`."
        )


class Psycopg(msgspec.Struct, frozen=True):
    connection: Any

    def check(self) -> None:
        check_psycopg(self.connection, "psycopg.Connection", "with connection.transaction(): ...")

    def in_transaction(self) -> bool:
        return True

    def execute(self, statement: Statement) -> Rows:
        import psycopg

        # Not connection.cursor(): its cursor and row factories are the user's.
        cursor = psycopg.Cursor(self.connection, row_factory=psycopg.rows.tuple_row)
        text, params = compile(statement.sql, "pyformat").data, statement.params
        if self.connection.pgconn.pipeline_status:
            # In the user's pipeline nothing is known of an answer before a sync, which the end of an inner one is.
            with self.connection.pipeline():
                cursor.execute(text, params)
        else:
            cursor.execute(text, params)
        answer = cursor.pgresult
        return cursor.fetchall() if answer is not None and answer.nfields else []


@dataclass(frozen=True, slots=True)
class PsycopgAsync:
    connection: Any

    def check(self) -> None:
        check_psycopg(self.connection, "psycopg.AsyncConnection", "async with connection.transaction(): ...")

    async def run(self, plan: Plan[T], dialect: Dialect) -> T:
        return await adrive(plan, self.execute)

    async def execute(self, statement: Statement) -> Rows:
        import psycopg

        async with psycopg.AsyncCursor(self.connection, row_factory=psycopg.rows.tuple_row) as cursor:
            async with (
                self.connection.pipeline() if self.connection.pgconn.pipeline_status else nullcontext()
            ):
                await cursor.execute(compile(statement.sql, "pyformat").data, statement.params)
            return await cursor.fetchall() if cursor.description else []


@dataclass(frozen=True, slots=True)
class Psycopg2:
    connection: Any

    def check(self) -> None:
        if not self.connection.autocommit:
            return
        # `with connection:` opens a transaction in autocommit mode too, but only with its first statement.
        if self.connection.info.transaction_status == 0:
            self.execute(Statement("select 1"))
        if self.connection.info.transaction_status == 0:
            raise refuse(
                "psycopg2 connection",
                "the connection is in autocommit mode and no transaction is open",
                "Set `connection.autocommit = False`, or open a transaction: `with connection: ...`.",
            )

    def in_transaction(self) -> bool:
        return True

    def execute(self, statement: Statement) -> Rows:
        from psycopg2.extensions import cursor as plain_cursor

        with self.connection.cursor(cursor_factory=plain_cursor) as cursor:
            cursor.execute(compile(statement.sql, "pyformat").sql, with_text_ids(statement.params))
            rows: Rows = cursor.fetchall() if cursor.description else []
            return rows


@dataclass(frozen=True, slots=True)
class Asyncpg:
    connection: Any

    def check(self) -> None:
        if not self.connection.is_in_transaction():
            raise refuse(
                "asyncpg.Connection",
                "no transaction is open",
                "Open one: `async with connection.transaction(): ...`.",
            )

    async def run(self, plan: Plan[T], dialect: Dialect) -> T:
        return await adrive(plan, self.execute)

    async def execute(self, statement: Statement) -> Rows:
        compiled = compile(statement.sql, "numeric")
        rows = await self.connection.fetch(compiled.sql, *compiled.arguments(statement.params))
        return [tuple(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Django:
    connection: Any

    def check(self) -> None:
        if not self.connection.in_atomic_block and self.connection.get_autocommit():
            alias = self.connection.alias
            using = "" if alias == "default" else f"using={alias!r}"
            call = f"with transaction.atomic({using}): ..."
            raise refuse("Django connection", "no atomic block is open", f"Open one: `{call}`.")

    def in_transaction(self) -> bool:
        self.connection.ensure_connection()
        return self.connection.vendor != "sqlite" or bool(self.connection.connection.in_transaction)

    def execute(self, statement: Statement) -> Rows:
        with self.connection.cursor() as cursor:
            cursor.execute(compile(statement.sql, "pyformat").sql, with_text_ids(statement.params))
            rows = cursor.fetchall() if cursor.description else []
        # With USE_TZ=False Django takes the zone off what PostgreSQL sent in the zone of the session.
        zone = ZoneInfo(self.connection.timezone_name) if self.connection.vendor == "postgresql" else None
        return [tuple(aware(value, zone) for value in row) for row in rows]


def with_text_ids(params: Mapping[str, object]) -> dict[str, object]:
    """For psycopg2, and what may have it below: it knows UUIDs only if somebody has told it of them."""
    return {name: text_id(value) for name, value in params.items()}


def text_id(value: object) -> object:
    if isinstance(value, list):
        return [text_id(each) for each in value]
    return str(value) if isinstance(value, UUID) else value


def aware(value: object, zone: ZoneInfo | None) -> object:
    if zone and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=zone)
    return value


ALCHEMY_STYLES: dict[str, Style] = {
    "pysqlite": "named", "aiosqlite": "named", "asyncpg": "numeric",
    "psycopg": "pyformat", "psycopg_async": "pyformat", "psycopg2": "pyformat",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alchemy:
    """A Core connection, or the one that a session uses now. SQLAlchemy begins by itself at the first statement."""

    get: Callable[[], Any]
    style: Style

    def check(self) -> None:
        connection = self.get()
        if connection.dialect.name == "sqlite":
            autocommit = commits_each_statement(connection.connection.driver_connection)
        else:
            autocommit = bool(connection.connection.dbapi_connection.autocommit)
        if autocommit:
            raise refuse(
                "SQLAlchemy handle",
                "the connection's isolation level is AUTOCOMMIT",
                "Use a connection or session without `isolation_level='AUTOCOMMIT'`.",
            )

    def in_transaction(self) -> bool:
        return bool(self.get().connection.driver_connection.in_transaction)

    def execute(self, statement: Statement) -> Rows:
        compiled, params = compile(statement.sql, self.style), with_text_ids(statement.params)
        values = compiled.arguments(params) if self.style == "numeric" else params
        result = self.get().exec_driver_sql(compiled.sql, values)
        return [tuple(row) for row in result] if result.returns_rows else []


@dataclass(frozen=True, slots=True)
class AlchemyAsync:
    handle: Any
    style: Style

    def check(self) -> None:
        """Left to `run`: only a connection knows, and a session may not have one yet."""

    async def run(self, plan: Plan[T], dialect: Dialect) -> T:
        def visit(inner: Any) -> T:
            connection = Alchemy(connection_of(inner), self.style)
            connection.check()
            return perform(plan, connection, dialect)

        running: Awaitable[T] = self.handle.run_sync(visit)
        return await running


def connection_of(handle: Any) -> Callable[[], Any]:
    """How to get the Core connection of a session, or of a connection."""
    return (lambda: handle) if hasattr(handle, "exec_driver_sql") else handle.connection


# --- Recognising ------------------------------------------------------------------------------------------------------

ACCEPTED = (
    "sqlite3.Connection, aiosqlite.Connection, psycopg.Connection and AsyncConnection, a psycopg2 connection, "
    "asyncpg.Connection (also from a pool), SQLAlchemy Session, scoped_session, Connection, AsyncSession, "
    "async_scoped_session and AsyncConnection, and Django's connection"
)


def recognise(handle: Any) -> Handle:
    """What this handle is, or WrongHandle.

    >>> recognise(sqlite3.connect(":memory:")).kind
    'sqlite3.Connection'
    """
    if type(handle) is not handle.__class__:  # a proxy of an instrumentation or a web framework
        handle = getattr(handle, "__wrapped__", handle)
    found = find(handle.__class__)
    if found is None:
        raise WrongHandle(
            f"A {handle.__class__.__qualname__} is no handle of a transaction. Accepted: {ACCEPTED}."
        )
    package, name = found
    if advice := ADVICE.get(found):
        raise WrongHandle(f"A {package} {name} is no handle of a transaction: {advice}.")
    return MAKERS[found](handle)


@lru_cache(maxsize=256)
def find(cls: type) -> tuple[str, str] | None:
    """The first class among the ancestors that is known, as (package, name)."""
    for ancestor in cls.__mro__:
        key = (ancestor.__module__.partition(".")[0], ancestor.__name__)
        if key in MAKERS or key in ADVICE:
            return key
    return None


def make_django(handle: Any) -> Handle:
    match handle.vendor:
        case "sqlite":
            return Handle("Django connection", "sqlite", Django(handle))
        case "postgresql":
            return Handle("Django connection", "postgres", Django(handle))
        case other:
            raise WrongHandle(
                f"A Django connection to {other} cannot be used: Holdfast needs SQLite or PostgreSQL."
            )


def make_alchemy(handle: Any) -> Handle:
    if hasattr(handle, "registry"):  # scoped: the session of this thread or task
        handle = handle()
    name = type(handle).__name__
    dialect, is_async = alchemy_dialect(handle), hasattr(handle, "run_sync")
    kind = f"SQLAlchemy {name} ({dialect.name}+{dialect.driver})"
    style = ALCHEMY_STYLES.get(dialect.driver)
    if style is None:
        raise WrongHandle(
            f"A {kind} cannot be used: Holdfast knows the drivers {', '.join(sorted(ALCHEMY_STYLES))}."
        )
    database: Dialect = "sqlite" if dialect.name == "sqlite" else "postgres"
    if is_async:
        return Handle(kind, database, aconnection=AlchemyAsync(handle, style))
    return Handle(kind, database, Alchemy(connection_of(handle), style))


def alchemy_dialect(handle: Any) -> Any:
    if hasattr(handle, "dialect"):
        return handle.dialect
    try:
        return handle.get_bind().dialect
    except Exception as error:  # UnboundExecutionError: several binds and no default, or none at all
        raise WrongHandle(
            "This SQLAlchemy session does not say which database it means. "
            "Bind it, or hand over one of its connections: `on=session.connection(bind_arguments={...})`."
        ) from error


def blocking(kind: str, dialect: Dialect, make: Callable[[Any], Blocking]) -> Callable[[Any], Handle]:
    return lambda handle: Handle(kind, dialect, make(handle))


def awaited(kind: str, dialect: Dialect, make: Callable[[Any], Asynchronous]) -> Callable[[Any], Handle]:
    return lambda handle: Handle(kind, dialect, aconnection=make(handle))


MAKERS: dict[tuple[str, str], Callable[[Any], Handle]] = {
    ("sqlite3", "Connection"): blocking("sqlite3.Connection", "sqlite", Sqlite),
    ("aiosqlite", "Connection"): awaited("aiosqlite.Connection", "sqlite", Aiosqlite),
    ("psycopg", "Connection"): blocking("psycopg.Connection", "postgres", Psycopg),
    ("psycopg", "AsyncConnection"): awaited("psycopg.AsyncConnection", "postgres", PsycopgAsync),
    ("psycopg2", "connection"): blocking("psycopg2 connection", "postgres", Psycopg2),
    ("asyncpg", "Connection"): awaited("asyncpg.Connection", "postgres", Asyncpg),
    ("asyncpg", "PoolConnectionProxy"): awaited("asyncpg.Connection of a pool", "postgres", Asyncpg),
    ("django", "BaseDatabaseWrapper"): make_django,
    ("django", "ConnectionProxy"): make_django,
    **{
        ("sqlalchemy", name): make_alchemy
        for name in (
            "Session", "scoped_session", "Connection", "AsyncSession", "async_scoped_session", "AsyncConnection",
        )
    },
}  # fmt: skip

CURSOR = "hand over its connection, which owns the transaction"
POOL = "take a connection from it, open a transaction, and hand over that connection"
ENGINE = "open a transaction, `with engine.begin() as connection`, and hand over that connection"
FACTORY = "hand over a session that it made"

ADVICE: dict[tuple[str, str], str] = {
    ("sqlite3", "Cursor"): CURSOR, ("aiosqlite", "Cursor"): CURSOR,
    ("psycopg", "BaseCursor"): CURSOR, ("psycopg2", "cursor"): CURSOR, ("asyncpg", "Cursor"): CURSOR,
    ("psycopg", "Transaction"): CURSOR, ("psycopg", "AsyncTransaction"): CURSOR, ("asyncpg", "Transaction"): CURSOR,
    ("psycopg_pool", "BasePool"): POOL, ("psycopg2", "AbstractConnectionPool"): POOL, ("asyncpg", "Pool"): POOL,
    ("sqlalchemy", "Engine"): ENGINE, ("sqlalchemy", "AsyncEngine"): f"{ENGINE} (with `async with`)",
    ("sqlalchemy", "sessionmaker"): FACTORY, ("sqlalchemy", "async_sessionmaker"): FACTORY,
    ("sqlalchemy", "_ConnectionFairy"): "hand over its `driver_connection`",
    ("django", "CursorWrapper"): "hand over `django.db.connection`",
    ("django", "ConnectionHandler"): "hand over one of them, `connections['default']`",
}  # fmt: skip


# --- Missing tables ---------------------------------------------------------------------------------------------------

SQLITE_MISSING = re.compile(r"no such table: (\w+\.)?holdfast_")
# 42883 is also what a wrong operator gives; only a function with its schema is one of ours.
POSTGRES_MISSING = {"42P01": "", "3F000": "", "42883": r"\w\.\w+\("}


def raise_if_not_migrated(error: BaseException) -> None:
    """SQLAlchemy and Django wrap what the driver raised, so the causes are looked at too."""
    seen: BaseException | None = error
    for _ in range(5):
        if seen is None:
            return
        code = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        pattern = POSTGRES_MISSING.get(code) if isinstance(code, str) else None
        text = str(seen)
        missing = re.search(pattern, text) if pattern is not None else None
        if missing or (isinstance(seen, sqlite3.OperationalError) and SQLITE_MISSING.search(text)):
            raise NotMigrated(
                f"The database has no Holdfast tables ({text.partition(chr(10))[0]}): run `holdfast migrate` on it. "
                "Nothing of this call was stored; roll back your transaction and try again after that."
            ) from error
        seen = getattr(seen, "orig", None) or seen.__cause__
