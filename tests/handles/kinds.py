"""Every kind of handle, opened on a real database, behind one face for the tests.

A Subject is a handle with the ways of its library to write, to make a savepoint and to end the transaction.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiosqlite
import asyncpg
import django
import django.db
import psycopg
import psycopg.rows
import psycopg2
import psycopg2.extras
import sqlalchemy
from django.conf import settings as django_settings
from django.db import transaction as django_transaction
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy_async
from sqlalchemy.pool import NullPool

from holdfast.store.handles import Handle
from holdfast.store.recognise import recognise
from holdfast.store.statement import Plan, Statement

SQLITE_TABLES = """
    create table orders (id integer primary key);
    create table toy (name text primary key);
"""
POSTGRES_TABLES = """
    create table orders (id int primary key);
    create table toy (name text primary key);
"""

if not django_settings.configured:
    django_settings.configure(USE_TZ=True, TIME_ZONE="Europe/Zurich", DATABASES={})
    django.setup()


class Undo(Exception):
    """Raised in a block to have it rolled back."""


@dataclass
class Subject:
    handle: Any
    execute: Callable[[str], Awaitable[None]]
    savepoint: Callable[[], AbstractAsyncContextManager[Any]]

    @property
    def known(self) -> Handle:
        return recognise(self.handle)

    async def publish(self, name: str) -> int:
        return await self.run(publish(name))

    async def run(self, plan: Plan[Any]) -> Any:
        return await self.known.arun(plan) if self.known.is_async else self.known.run(plan)


def publish(name: str) -> Plan[int]:
    """Begins with a read, has a per cent sign, a comment and a literal with a colon: what a real plan may have."""
    rows = yield Statement("select count(*) from toy where name <> ':x' and 7 % 4 = 3 -- 5% :y")
    yield Statement("insert into toy (name) values (:name)", {"name": name})
    return int(rows[0][0])


def publish_and_fail(name: str) -> Plan[int]:
    yield from publish(name)
    yield Statement("select 1 from a_table_that_is_not_there")
    return 0


Opener = Callable[[str], AbstractAsyncContextManager[Subject]]
Kind = tuple[str, Opener]


# --- SQLite ---------------------------------------------------------------------------------------------------


def sqlite3_kind(**options: Any) -> Opener:
    @asynccontextmanager
    async def opened(path: str) -> AsyncIterator[Subject]:
        with closing(sqlite3.connect(path, **options)) as connection:
            if "isolation_level" in options:
                connection.execute("begin")

            async def execute(sql: str) -> None:
                connection.execute(sql)

            with ending(connection.commit, connection.rollback):
                yield Subject(connection, execute, lambda: savepoint(execute))

    return opened


def sqlite3_factories(path: str) -> AbstractAsyncContextManager[Subject]:
    """With every factory that a user may have set."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Subject]:
        async with sqlite3_kind()(path) as subject:
            subject.handle.row_factory = lambda cursor, row: {"nothing": "like a tuple"}
            subject.handle.text_factory = bytes
            yield subject
            assert subject.handle.text_factory is bytes

    return opened()


@asynccontextmanager
async def aiosqlite_kind(path: str) -> AsyncIterator[Subject]:
    async with aiosqlite.connect(path) as connection:
        connection.row_factory = sqlite3.Row

        async def execute(sql: str) -> None:
            await connection.execute(sql)

        try:
            yield Subject(connection, execute, lambda: savepoint(execute))
        except Undo:
            await connection.rollback()
        else:
            await connection.commit()


@asynccontextmanager
async def savepoint(execute: Callable[[str], Awaitable[None]]) -> AsyncIterator[None]:
    await execute("savepoint mine")
    try:
        yield
    except Undo:
        await execute("rollback to mine")
    await execute("release savepoint mine")


@contextmanager
def ending(commit: Callable[[], None], rollback: Callable[[], None]) -> Any:
    try:
        yield
    except Undo:
        rollback()
    else:
        commit()


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def psycopg_kind(autocommit: bool = False, **options: Any) -> Opener:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Subject]:
        with psycopg.connect(dsn, autocommit=autocommit, **options) as connection:

            async def execute(sql: str) -> None:
                psycopg.Cursor(connection).execute(sql.encode())

            @asynccontextmanager
            async def inner() -> AsyncIterator[None]:
                try:
                    with connection.transaction():
                        yield
                except Undo:
                    pass

            if autocommit:
                async with inner():
                    yield Subject(connection, execute, inner)
            else:
                with ending(connection.commit, connection.rollback):
                    yield Subject(connection, execute, inner)

    return opened


def psycopg_async_kind(autocommit: bool = False, **options: Any) -> Opener:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Subject]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit, **options) as connection:

            async def execute(sql: str) -> None:
                await psycopg.AsyncCursor(connection).execute(sql.encode())

            @asynccontextmanager
            async def inner() -> AsyncIterator[None]:
                try:
                    async with connection.transaction():
                        yield
                except Undo:
                    pass

            if autocommit:
                async with inner():
                    yield Subject(connection, execute, inner)
            else:
                try:
                    yield Subject(connection, execute, inner)
                except Undo:
                    await connection.rollback()
                else:
                    await connection.commit()

    return opened


@asynccontextmanager
async def psycopg_async_pipeline(dsn: str) -> AsyncIterator[Subject]:
    async with psycopg_async_kind(autocommit=True)(dsn) as subject, subject.handle.pipeline():
        yield subject


@asynccontextmanager
async def psycopg_pipeline(dsn: str) -> AsyncIterator[Subject]:
    async with psycopg_kind(autocommit=True)(dsn) as subject:
        with subject.handle.pipeline():
            yield subject


def psycopg2_kind(autocommit: bool = False, **options: Any) -> Opener:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Subject]:
        with closing(psycopg2.connect(dsn, **options)) as connection:
            connection.autocommit = autocommit

            async def execute(sql: str) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(sql)

            subject = Subject(connection, execute, lambda: savepoint(execute))
            if autocommit:
                try:
                    with connection:
                        yield subject
                except Undo:
                    pass
            else:
                with ending(connection.commit, connection.rollback):
                    yield subject

    return opened


def asyncpg_subject(connection: Any) -> Subject:
    async def execute(sql: str) -> None:
        await connection.execute(sql)

    @asynccontextmanager
    async def inner() -> AsyncIterator[None]:
        try:
            async with connection.transaction():
                yield
        except Undo:
            pass

    return Subject(connection, execute, inner)


@asynccontextmanager
async def asyncpg_kind(dsn: str) -> AsyncIterator[Subject]:
    connection = await asyncpg.connect(dsn)
    try:
        subject = asyncpg_subject(connection)
        async with subject.savepoint():
            yield subject
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool_kind(dsn: str) -> AsyncIterator[Subject]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        subject = asyncpg_subject(connection)
        async with subject.savepoint():
            yield subject


# --- SQLAlchemy ---------------------------------------------------------------------------------------------------


def alchemy_url(target: str, driver: str) -> str:
    if target.startswith("postgres"):
        return target.replace("postgresql://", f"postgresql+{driver}://")
    return f"sqlite+{driver}:///{target}"


def alchemy_kind(driver: str, make: Callable[[sqlalchemy.Engine], Any]) -> Opener:
    @asynccontextmanager
    async def opened(target: str) -> AsyncIterator[Subject]:
        engine = sqlalchemy.create_engine(alchemy_url(target, driver), poolclass=NullPool)
        handle = make(engine)

        async def execute(sql: str) -> None:
            handle.execute(sqlalchemy.text(sql))

        @asynccontextmanager
        async def inner() -> AsyncIterator[None]:
            try:
                with handle.begin_nested():
                    yield
            except Undo:
                pass

        with ending(handle.commit, handle.rollback):
            yield Subject(handle, execute, inner)
        getattr(handle, "remove", handle.close)()
        engine.dispose()

    return opened


def alchemy_async_kind(driver: str, make: Callable[[Any], Any]) -> Opener:
    @asynccontextmanager
    async def opened(target: str) -> AsyncIterator[Subject]:
        engine = alchemy_async.create_async_engine(alchemy_url(target, driver), poolclass=NullPool)
        handle = make(engine)
        if isinstance(handle, alchemy_async.AsyncConnection):
            await handle

        async def execute(sql: str) -> None:
            await handle.execute(sqlalchemy.text(sql))

        @asynccontextmanager
        async def inner() -> AsyncIterator[None]:
            try:
                async with handle.begin_nested():
                    yield
            except Undo:
                pass

        try:
            try:
                yield Subject(handle, execute, inner)
            except Undo:
                await handle.rollback()
            else:
                await handle.commit()
        finally:
            await getattr(handle, "remove", handle.close)()
            await engine.dispose()

    return opened


def alchemy_scoped(engine: sqlalchemy.Engine) -> Any:
    return orm.scoped_session(orm.sessionmaker(engine))


def alchemy_async_scoped(engine: Any) -> Any:
    return alchemy_async.async_scoped_session(alchemy_async.async_sessionmaker(engine), scopefunc=lambda: 1)


def alchemy_kinds(drivers: list[str], async_drivers: list[str]) -> list[Kind]:
    sync: list[tuple[str, Any]] = [
        ("Session", orm.Session),
        ("scoped_session", alchemy_scoped),
        ("Connection", lambda engine: engine.connect()),
    ]
    asynchronous: list[tuple[str, Any]] = [
        ("AsyncSession", alchemy_async.AsyncSession),
        ("async_scoped_session", alchemy_async_scoped),
        ("AsyncConnection", lambda engine: engine.connect()),
    ]
    return [
        *((f"{name}+{driver}", alchemy_kind(driver, make)) for name, make in sync for driver in drivers),
        *(
            (f"{name}+{driver}", alchemy_async_kind(driver, make))
            for name, make in asynchronous
            for driver in async_drivers
        ),
    ]


# --- Django -------------------------------------------------------------------------------------------------------


def django_database(target: str, **options: Any) -> dict[str, Any]:
    if not target.startswith("postgres"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": target, "OPTIONS": options}
    parts = urlsplit(target)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname,
        "PORT": parts.port,
        "OPTIONS": options,
    }


@contextmanager
def django_connection(target: str, **options: Any) -> Any:
    defaults = django.db.connections.configure_settings({"default": django_database(target, **options)})
    django.db.connections.settings["default"] = defaults["default"]
    connection = django.db.connections["default"]
    try:
        yield connection
    finally:
        connection.close()
        del django.db.connections["default"]


def django_kind(proxy: bool = False, **options: Any) -> Opener:
    @asynccontextmanager
    async def opened(target: str) -> AsyncIterator[Subject]:
        with django_connection(target, **options) as connection:

            async def execute(sql: str) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(sql)

            @asynccontextmanager
            async def inner() -> AsyncIterator[None]:
                try:
                    with django_transaction.atomic():
                        yield
                except Undo:
                    pass

            async with inner():
                yield Subject(django.db.connection if proxy else connection, execute, inner)

    return opened


# --- All of them ----------------------------------------------------------------------------------------------------

SQLITE: list[Kind] = [
    ("sqlite3", sqlite3_kind()),
    ("sqlite3 begun by hand", sqlite3_kind(isolation_level=None)),
    ("sqlite3 with factories", sqlite3_factories),
    ("aiosqlite", aiosqlite_kind),
    *alchemy_kinds(["pysqlite"], ["aiosqlite"]),
    ("Django connection", django_kind()),
    ("Django proxy", django_kind(proxy=True)),
    ("Django immediate", django_kind(transaction_mode="IMMEDIATE")),
]

POSTGRES: list[Kind] = [
    ("psycopg", psycopg_kind()),
    ("psycopg autocommit", psycopg_kind(autocommit=True)),
    ("psycopg pipeline", psycopg_pipeline),
    (
        "psycopg with factories",
        psycopg_kind(row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.RawCursor),
    ),
    ("psycopg unprepared", psycopg_kind(prepare_threshold=None, cursor_factory=psycopg.ClientCursor)),
    ("psycopg async pipeline", psycopg_async_pipeline),
    ("psycopg async", psycopg_async_kind()),
    ("psycopg async autocommit", psycopg_async_kind(autocommit=True, row_factory=psycopg.rows.dict_row)),
    ("psycopg2", psycopg2_kind()),
    ("psycopg2 autocommit", psycopg2_kind(autocommit=True)),
    ("psycopg2 with factories", psycopg2_kind(cursor_factory=psycopg2.extras.RealDictCursor)),
    ("asyncpg", asyncpg_kind),
    ("asyncpg pool", asyncpg_pool_kind),
    *alchemy_kinds(["psycopg", "psycopg2"], ["psycopg", "asyncpg"]),
    ("Django connection", django_kind()),
    ("Django proxy", django_kind(proxy=True)),
    ("Django server-side binding", django_kind(server_side_binding=True)),
]


def make_tables(target: str) -> None:
    if target.startswith("postgres"):
        with psycopg.connect(target) as connection:
            connection.execute(POSTGRES_TABLES.encode())
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(target)) as file:
            file.executescript("pragma journal_mode = wal;" + SQLITE_TABLES)


@functools.cache
def observer(dsn: str) -> psycopg.Connection[Any]:
    """A connection beside those of the kinds, which commits by itself and so sees what is committed."""
    return psycopg.connect(dsn, autocommit=True)


def stored(target: str) -> tuple[list[int], list[str]]:
    """What another connection sees: the user's rows, and ours."""
    queries = "select id from orders order by 1", "select name from toy order by 1"
    if target.startswith("postgres"):
        orders, toys = (observer(target).execute(query.encode()).fetchall() for query in queries)
    else:
        with closing(sqlite3.connect(target)) as file:
            orders, toys = (file.execute(query).fetchall() for query in queries)
    return [row[0] for row in orders], [row[0] for row in toys]
