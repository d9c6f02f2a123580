"""Plans inside the caller's own transaction: each kind of handle that a user may have, checked and driven.

Nothing here commits. Either the whole plan is done or, when it fails, none of it: PostgreSQL aborts the
transaction, on SQLite a savepoint undoes what the plan had written before it failed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Mapping
from contextlib import nullcontext
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from ..errors import NotInTransaction, NotMigrated, WrongHandle
from .statement import Bound, Rows, Statement, adrive, drive
from .text import Dialect, Style, compile

T = TypeVar("T")


class Handle(msgspec.Struct, frozen=True):
    """A user's connection or session, known by its kind. Made at every publish, so it is one light object."""

    connection: Any
    kind: str
    dialect: Dialect
    is_async: ClassVar[bool]

    def check(self) -> None:
        """Refuse, without asking the database if that can be avoided, a handle that would commit by itself."""
        raise NotImplementedError

    # A kind of handle has one of these two and refuses the other. `verb` is what the caller called.

    def run(self, plan: Bound[T], *, verb: str = "publish") -> T:
        """Run the plan in the caller's transaction and block until it is done."""
        raise WrongHandle(
            f"{verb}() blocks and was given an async handle ({self.kind}), so nothing was done: "
            f"write `await a{verb}(...)` with the same arguments."
        )

    async def arun(self, plan: Bound[T], *, verb: str = "apublish") -> T:
        """Run the plan in the caller's transaction."""
        raise WrongHandle(
            f"{verb}() was given a blocking handle ({self.kind}), so nothing was done: "
            f"call `{verb.removeprefix('a')}(...)` with the same arguments and no await."
        )


class Blocking(Handle, frozen=True):
    """A blocking handle."""

    is_async = False

    def execute(self, statement: Statement) -> Rows:
        raise NotImplementedError

    def in_transaction(self) -> bool:
        """Called on SQLite only."""
        raise NotImplementedError

    def run(self, plan: Bound[T], *, verb: str = "publish") -> T:
        self.check()
        try:
            return drive(plan, self.execute) if self.dialect == "postgres" else perform_whole(plan, self)
        except Exception as error:
            raise_if_not_migrated(error)
            raise


class Asynchronous(Handle, frozen=True):
    """An async handle."""

    is_async = True

    async def execute(self, statement: Statement) -> Rows:
        raise NotImplementedError

    async def arun(self, plan: Bound[T], *, verb: str = "apublish") -> T:
        self.check()
        try:
            return await adrive(plan, self.execute)
        except Exception as error:
            raise_if_not_migrated(error)
            raise


def perform_whole(plan: Bound[T], handle: Blocking) -> T:
    """All of the plan or nothing, on SQLite, which does not abort a transaction after an error."""
    # A transaction that begins with a read cannot always become a writing one later (BUSY at once, whatever the
    # timeout), so if none is open yet it begins as a writing one.
    open_already = handle.in_transaction()
    handle.execute(Statement("SAVEPOINT holdfast" if open_already else "BEGIN IMMEDIATE"))
    try:
        result = drive(plan, handle.execute)
    except BaseException:
        try:
            handle.execute(Statement("ROLLBACK TO holdfast" if open_already else "ROLLBACK"))
            if open_already:
                handle.execute(Statement("RELEASE holdfast"))
        except Exception:  # disk full or an interrupt has already rolled everything back
            pass
        raise
    if open_already:
        handle.execute(Statement("RELEASE holdfast"))
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


class Sqlite(Blocking, frozen=True):
    kind: str = "sqlite3.Connection"
    dialect: Dialect = "sqlite"

    def check(self) -> None:
        if commits_each_statement(self.connection):
            call = 'await connection.execute("BEGIN IMMEDIATE")'
            raise refuse(
                self.kind,
                "the connection commits each statement (isolation_level=None or autocommit=True)",
                f"Begin one first: `{call if 'aio' in self.kind else call.removeprefix('await ')}`.",
            )

    def in_transaction(self) -> bool:
        return bool(self.connection.in_transaction)

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


class Aiosqlite(Asynchronous, frozen=True):
    kind: str = "aiosqlite.Connection"
    dialect: Dialect = "sqlite"

    def check(self) -> None:
        Sqlite(self.connection, self.kind).check()

    async def arun(self, plan: Bound[T], *, verb: str = "apublish") -> T:
        self.check()  # again in the connection's own thread: only there can everything be checked
        # The whole plan is one visit to that thread: a cancelled caller cannot leave half of it behind.
        work = Sqlite(self.connection._conn, self.kind)
        running: Awaitable[T] = self.connection._execute(lambda: work.run(plan))
        return await running


@cache
def psycopg_cursors() -> tuple[Any, Any, Any]:
    from psycopg import AsyncCursor, Cursor, rows

    return Cursor, AsyncCursor, rows.tuple_row


def check_psycopg(handle: Handle, call: str) -> None:
    from psycopg.pq import TransactionStatus

    connection = handle.connection
    status = connection.info.transaction_status
    # In a pipeline the result of BEGIN may not be here yet; then the status only says that something is pending.
    waiting = status == TransactionStatus.ACTIVE and not getattr(connection, "_num_transactions", 0)
    if status == TransactionStatus.IDLE or waiting:
        raise refuse(
            handle.kind,
            "the connection is in autocommit mode and no transaction is open",
            f"Open one: `{call}`.",
        )


class Psycopg(Blocking, frozen=True):
    kind: str = "psycopg.Connection"
    dialect: Dialect = "postgres"

    def check(self) -> None:
        if self.connection.autocommit:
            check_psycopg(self, "with connection.transaction(): ...")

    def execute(self, statement: Statement) -> Rows:
        # Not connection.cursor(): its cursor and row factories are the user's.
        cursor_class, _, tuple_row = psycopg_cursors()
        cursor = cursor_class(self.connection, row_factory=tuple_row)
        text, params = compile(statement.sql, "pyformat").data, statement.params
        if self.connection.pgconn.pipeline_status:
            # In the user's pipeline results arrive only at a sync; the end of an inner pipeline is one.
            with self.connection.pipeline():
                cursor.execute(text, params)
        else:
            cursor.execute(text, params)
        answer = cursor.pgresult
        return cursor.fetchall() if answer is not None and answer.nfields else []


class PsycopgAsync(Asynchronous, frozen=True):
    kind: str = "psycopg.AsyncConnection"
    dialect: Dialect = "postgres"

    def check(self) -> None:
        if self.connection.autocommit:
            check_psycopg(self, "async with connection.transaction(): ...")

    async def execute(self, statement: Statement) -> Rows:
        _, cursor_class, tuple_row = psycopg_cursors()
        async with cursor_class(self.connection, row_factory=tuple_row) as cursor:
            async with (
                self.connection.pipeline() if self.connection.pgconn.pipeline_status else nullcontext()
            ):
                await cursor.execute(compile(statement.sql, "pyformat").data, statement.params)
            return await cursor.fetchall() if cursor.description else []


class Psycopg2(Blocking, frozen=True):
    kind: str = "psycopg2 connection"
    dialect: Dialect = "postgres"

    def check(self) -> None:
        if not self.connection.autocommit:
            return
        # `with connection:` opens a transaction in autocommit mode too, but only with its first statement.
        if self.connection.info.transaction_status == 0:
            self.execute(Statement("select 1"))
        if self.connection.info.transaction_status == 0:
            raise refuse(
                self.kind,
                "the connection is in autocommit mode and no transaction is open",
                "Set `connection.autocommit = False`, or open a transaction: `with connection: ...`.",
            )

    def execute(self, statement: Statement) -> Rows:
        from psycopg2.extensions import cursor as plain_cursor

        with self.connection.cursor(cursor_factory=plain_cursor) as cursor:
            cursor.execute(compile(statement.sql, "pyformat").sql, with_text_ids(statement.params))
            rows: Rows = cursor.fetchall() if cursor.description else []
            return rows


class Asyncpg(Asynchronous, frozen=True):
    kind: str = "asyncpg.Connection"
    dialect: Dialect = "postgres"

    def check(self) -> None:
        if not self.connection.is_in_transaction():
            raise refuse(
                self.kind,
                "no transaction is open",
                "Open one: `async with connection.transaction(): ...`.",
            )

    async def execute(self, statement: Statement) -> Rows:
        compiled = compile(statement.sql, "numeric")
        rows = await self.connection.fetch(compiled.sql, *compiled.arguments(statement.params))
        return [tuple(row) for row in rows]


class Django(Blocking, frozen=True):
    kind: str = "Django connection"
    dialect: Dialect = "postgres"

    def check(self) -> None:
        if not self.connection.in_atomic_block and self.connection.get_autocommit():
            alias = self.connection.alias
            using = "" if alias == "default" else f"using={alias!r}"
            call = f"with transaction.atomic({using}): ..."
            raise refuse(self.kind, "no atomic block is open", f"Open one: `{call}`.")

    def in_transaction(self) -> bool:
        self.connection.ensure_connection()
        return bool(self.connection.connection.in_transaction)

    def execute(self, statement: Statement) -> Rows:
        with self.connection.cursor() as cursor:
            cursor.execute(compile(statement.sql, "pyformat").sql, with_text_ids(statement.params))
            rows = cursor.fetchall() if cursor.description else []
        # With USE_TZ=False Django takes the zone off what PostgreSQL sent in the zone of the session.
        zone = ZoneInfo(self.connection.timezone_name) if self.dialect == "postgres" else None
        return [tuple(aware(value, zone) for value in row) for row in rows]


def with_text_ids(params: Mapping[str, object]) -> dict[str, object]:
    """For psycopg2 and what may use it: it knows UUIDs only after they were registered."""
    return {name: text_id(value) for name, value in params.items()}


def text_id(value: object) -> object:
    if isinstance(value, list):
        return [text_id(each) for each in value]
    return str(value) if isinstance(value, UUID) else value


def aware(value: object, zone: ZoneInfo | None) -> object:
    if zone and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=zone)
    return value


class Alchemy(Blocking, frozen=True):
    """A Core connection, or a session. SQLAlchemy begins by itself at the first statement."""

    style: Style

    def core(self) -> Any:
        """The Core connection, or the one that the session uses now."""
        handle = self.connection
        return handle if hasattr(handle, "exec_driver_sql") else handle.connection()

    def check(self) -> None:
        connection = self.core()
        if self.dialect == "sqlite":
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
        return bool(self.core().connection.driver_connection.in_transaction)

    def execute(self, statement: Statement) -> Rows:
        compiled, params = compile(statement.sql, self.style), with_text_ids(statement.params)
        values = compiled.arguments(params) if self.style == "numeric" else params
        result = self.core().exec_driver_sql(compiled.sql, values)
        return [tuple(row) for row in result] if result.returns_rows else []


class AlchemyAsync(Asynchronous, frozen=True):
    """Nothing is checked outside of `arun`: only a connection knows, and a session may not have one yet."""

    style: Style

    async def arun(self, plan: Bound[T], *, verb: str = "apublish") -> T:
        def visit(inner: Any) -> T:
            return Alchemy(inner, self.kind, self.dialect, self.style).run(plan)

        running: Awaitable[T] = self.connection.run_sync(visit)
        return await running


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
