"""What is no transaction is refused before anything is stored, with the call that is missing; the rest is named."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import django.db
import psycopg
import psycopg2
import pytest
import sqlalchemy
from django.test.utils import override_settings
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy_async
from sqlalchemy.pool import NullPool

from holdfast.errors import NotInTransaction, UsageError, WrongHandle
from holdfast.store.handles import Handle
from holdfast.store.recognise import ACCEPTED, MAKERS, recognise
from holdfast.store.statement import Plan, Rows, Statement
from tests import servers
from tests.handles import kinds
from tests.handles.kinds import publish, publish_and_fail, stored


@pytest.fixture(autouse=True)
def django_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture
def file(tmp_path: Path) -> str:
    target = str(tmp_path / "toy.db")
    kinds.make_tables(target)
    return target


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        kinds.make_tables(dsn)
        yield dsn
        kinds.observer(dsn).close()


def refused(handle: Any, advice: str) -> None:
    known = recognise(handle)
    with pytest.raises(NotInTransaction, match=advice):
        known.check()
    with pytest.raises(NotInTransaction, match="Nothing was stored"):
        known.run(publish("a"))


async def arefused(handle: Any, advice: str) -> None:
    with pytest.raises(NotInTransaction, match="Nothing was stored") as raised:
        await recognise(handle).arun(publish("a"))
    assert advice in str(raised.value)


# --- Outside a transaction --------------------------------------------------------------------------------


def test_sqlite3_in_autocommit_mode(file: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        refused(connection, r'`connection.execute\("BEGIN IMMEDIATE"\)`')
        connection.execute("begin")
        recognise(connection).check()
        connection.rollback()
    assert stored(file) == ([], [])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3.connect(autocommit=) came with Python 3.12")
def test_sqlite3_with_the_newer_way_to_say_autocommit(file: str) -> None:
    with closing(sqlite3.connect(file, autocommit=True)) as connection:  # type: ignore[call-arg,unused-ignore]
        refused(connection, "BEGIN IMMEDIATE")
    with closing(sqlite3.connect(file, autocommit=False)) as connection:  # type: ignore[call-arg,unused-ignore]
        recognise(connection).run(publish("a"))
        connection.rollback()
        recognise(connection).run(publish("b"))
        connection.commit()
    assert stored(file) == ([], ["b"])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3.connect(autocommit=) came with Python 3.12")
async def test_aiosqlite_with_the_newer_way_to_say_autocommit(file: str) -> None:
    async with aiosqlite.connect(file, autocommit=True) as connection:
        await arefused(connection, "BEGIN IMMEDIATE")


async def test_aiosqlite_in_autocommit_mode(file: str) -> None:
    async with aiosqlite.connect(file, isolation_level=None) as connection:
        await arefused(connection, '`await connection.execute("BEGIN IMMEDIATE")`')
        await connection.execute("begin")
        await recognise(connection).arun(publish("a"))
        await connection.execute("commit")
    assert stored(file) == ([], ["a"])


def test_psycopg_in_autocommit_mode(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        refused(connection, r"`with connection.transaction\(\): \.\.\.`")
        with connection.pipeline():
            connection.execute("select 1")
            refused(connection, "transaction")
        with connection.transaction(force_rollback=True):
            recognise(connection).run(publish("a"))
    assert stored(database) == ([], [])


async def test_psycopg_async_in_autocommit_mode(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await arefused(connection, "`async with connection.transaction(): ...`")


def test_psycopg2_in_autocommit_mode(database: str) -> None:
    with closing(psycopg2.connect(database)) as connection:
        connection.autocommit = True
        refused(connection, "`connection.autocommit = False`")
        connection.autocommit = False
        recognise(connection).run(publish("a"))
        connection.rollback()


async def test_asyncpg_outside_a_transaction(database: str) -> None:
    connection = await asyncpg.connect(database)
    await arefused(connection, "`async with connection.transaction(): ...`")
    await connection.close()
    async with asyncpg.create_pool(database, min_size=1) as pool, pool.acquire() as pooled:
        await arefused(pooled, "`async with connection.transaction(): ...`")


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_with_autocommit_on_postgres(database: str, driver: str) -> None:
    alchemy_refused(kinds.alchemy_url(database, driver))


def test_sqlalchemy_with_autocommit_on_sqlite(file: str) -> None:
    alchemy_refused(kinds.alchemy_url(file, "pysqlite"))


def alchemy_refused(url: str) -> None:
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        refused(connection, "without `isolation_level='AUTOCOMMIT'`")
    with orm.Session(engine) as session:
        refused(session, "without `isolation_level='AUTOCOMMIT'`")
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        refused(connection, "without `isolation_level='AUTOCOMMIT'`")


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_async_sqlalchemy_with_autocommit_on_postgres(database: str, driver: str) -> None:
    await async_alchemy_refused(kinds.alchemy_url(database, driver))


async def test_async_sqlalchemy_with_autocommit_on_sqlite(file: str) -> None:
    await async_alchemy_refused(kinds.alchemy_url(file, "aiosqlite"))


async def async_alchemy_refused(url: str) -> None:
    engine = alchemy_async.create_async_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    async with engine.connect() as connection:
        await arefused(connection, "without `isolation_level='AUTOCOMMIT'`")
    async with alchemy_async.AsyncSession(engine) as session:
        await arefused(session, "without `isolation_level='AUTOCOMMIT'`")


def test_django_outside_an_atomic_block(file: str, database: str) -> None:
    for target in (file, database):
        with kinds.django_connection(target) as connection:
            refused(connection, r"`with transaction.atomic\(\): \.\.\.`")
            refused(django.db.connection, r"`with transaction.atomic\(\): \.\.\.`")


def test_django_with_autocommit_turned_off_by_hand(file: str, database: str) -> None:
    for target in (file, database):
        with kinds.django_connection(target) as connection:
            connection.set_autocommit(False)
            recognise(connection).run(publish("a"))
            connection.rollback()
            assert stored(target) == ([], [])
            recognise(connection).run(publish("b"))
            connection.commit()
            assert stored(target) == ([], ["b"])
            with connection.cursor() as cursor:
                cursor.execute("delete from toy")
            connection.commit()


# --- SQLite's write lock ----------------------------------------------------------------------------------


def test_a_publish_waits_for_the_writer_before_it_and_does_not_fail(file: str) -> None:
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    other.execute("insert into orders values (9)")

    def commit_later() -> None:
        time.sleep(0.3)
        other.execute("commit")

    thread = threading.Thread(target=commit_later)
    with closing(sqlite3.connect(file, timeout=10)) as connection:
        thread.start()
        # It reads first: a deferred transaction would be BUSY at once.
        recognise(connection).run(publish("a"))
        connection.commit()
    thread.join()
    other.close()
    assert stored(file) == ([9], ["a"])


def test_a_plan_that_fails_does_not_leave_the_lock_that_it_took(file: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="a_table_that_is_not_there"):
            recognise(connection).run(publish_and_fail("a"))
        assert not connection.in_transaction
    assert stored(file) == ([], [])


async def test_a_cancelled_publish_is_whole_or_not_there(file: str) -> None:
    import asyncio

    async with aiosqlite.connect(file) as connection:
        for round in range(20):
            await connection.execute(f"insert into orders values ({round})")
            running = asyncio.ensure_future(recognise(connection).arun(publish(f"{round}")))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            async with connection.execute("select count(*) from toy"):
                pass
            with pytest.raises(sqlite3.OperationalError, match="no such savepoint"):
                await connection.execute("release holdfast")
        await connection.commit()
    assert stored(file)[0] == list(range(20))


# --- Handles that are none --------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", ["sqlite:///x", None, 5, object(), {}, [], int])
def test_what_is_no_handle_is_told_what_would_be(handle: object) -> None:
    with pytest.raises(WrongHandle) as raised:
        recognise(handle)
    assert ACCEPTED in str(raised.value)
    assert isinstance(raised.value, UsageError)


def test_what_is_nearly_a_handle_is_told_what_to_hand_over(file: str, database: str) -> None:
    def wrong(handle: Any, advice: str) -> None:
        with pytest.raises(WrongHandle, match=advice):
            recognise(handle)

    engine = sqlalchemy.create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with closing(sqlite3.connect(file)) as connection:
        wrong(connection.cursor(), "hand over its connection")
    with psycopg.connect(database) as pg:
        wrong(pg.cursor(), "hand over its connection")
        wrong(psycopg.ClientCursor(pg), "hand over its connection")
        with pg.transaction() as transaction:
            wrong(transaction, "hand over its connection")
    with closing(psycopg2.connect(database)) as pg2:
        wrong(pg2.cursor(), "hand over its connection")
    with kinds.django_connection(file) as dj, dj.cursor() as cursor:
        wrong(cursor, "hand over `django.db.connection`")
    wrong(django.db.connections, r"connections\['default'\]")
    wrong(engine, r"with engine.begin\(\) as connection")
    wrong(alchemy_async.create_async_engine("sqlite+aiosqlite://"), "async with")
    wrong(orm.sessionmaker(engine), "session that it made")
    wrong(alchemy_async.async_sessionmaker(), "session that it made")
    fairy = engine.raw_connection()
    wrong(fairy, "driver_connection")
    fairy.close()
    wrong(orm.Session(), "Bind it")


async def test_pools_are_told_to_give_a_connection(database: str) -> None:
    async with asyncpg.create_pool(database, min_size=0) as pool:
        with pytest.raises(WrongHandle, match="take a connection from it"):
            recognise(pool)


def test_a_database_that_is_not_ours() -> None:
    class Oracle(kinds.django.db.backends.base.base.BaseDatabaseWrapper):  # type: ignore[misc]
        vendor = "oracle"

        def __init__(self) -> None: ...

    with pytest.raises(WrongHandle, match="needs SQLite or PostgreSQL"):
        recognise(Oracle())

    class Connection:
        """Stands for a Core connection of another driver."""

        __module__ = "sqlalchemy.engine.base"
        dialect = type("dialect", (), {"name": "mysql", "driver": "mysqldb"})

    with pytest.raises(WrongHandle, match=r"mysql\+mysqldb.*knows the drivers"):
        recognise(Connection())


def test_a_subclass_is_what_its_ancestor_is(file: str) -> None:
    class Mine(sqlite3.Connection): ...

    with closing(sqlite3.connect(file, factory=Mine)) as connection:
        assert recognise(connection).kind == "sqlite3.Connection"


def test_a_proxy_is_what_it_wraps(file: str) -> None:
    class Proxy:
        """As instrumentations and web frameworks wrap connections."""

        def __init__(self, wrapped: object) -> None:
            self.__wrapped__ = wrapped

        @property
        def __class__(self) -> Any:
            return self.__wrapped__.__class__

    with closing(sqlite3.connect(file)) as connection:
        recognise(Proxy(connection)).run(publish("a"))
        connection.commit()
    assert stored(file) == ([], ["a"])


def test_kinds_have_names_for_messages(file: str) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with orm.Session(engine) as session:
        known = recognise(session)
    assert (known.kind, known.dialect, known.is_async) == (
        "SQLAlchemy Session (sqlite+pysqlite)",
        "sqlite",
        False,
    )
    assert isinstance(known, Handle)
    assert len(MAKERS) == 15


# --- The rest of what users do ----------------------------------------------------------------------------


async def test_a_sync_session_inside_run_sync(file: str) -> None:
    """The way of those who keep their sync code and run it in an async engine."""
    engine = alchemy_async.create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
    async with alchemy_async.AsyncSession(engine) as session:
        await session.run_sync(lambda inner: recognise(inner).run(publish("a")))
        await session.commit()
    assert stored(file) == ([], ["a"])


def moment() -> Plan[Rows]:
    return (yield Statement("select timestamptz '2026-07-01 12:00:00+00'"))


def test_django_without_time_zones_still_gives_aware_moments(database: str) -> None:
    with (
        override_settings(USE_TZ=False),
        kinds.django_connection(database) as connection,
        kinds.django_transaction.atomic(),
    ):
        [(value,)] = recognise(connection).run(moment())
    assert value.isoformat() == "2026-07-01T14:00:00+02:00"


def run_alone(script: str) -> None:
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=paths)


OTHER_DRIVER = """
import sys
sys.modules["psycopg"] = None  # as on a machine that has only psycopg2
import django
from django.conf import settings
settings.configure(USE_TZ={use_tz}, TIME_ZONE="Europe/Zurich", DATABASES={{"default": {database!r}}})
django.setup()
from django.db import connection, transaction
from datetime import datetime, UTC
from holdfast.store.recognise import recognise
from holdfast.store.statement import Statement

def plan():
    return (yield Statement(
        "select :at::timestamptz, :names::text[], :ids::uuid[]::text[], :numbers::float8[], 7 % 4",
        {{"at": datetime(2026, 7, 1, 12, tzinfo=UTC), "names": ["a", 'b"\\\\'], "numbers": [0.5],
          "ids": ["00000000-0000-0000-0000-000000000001"]}}))

with transaction.atomic():
    [row] = recognise(connection).run(plan())
assert type(connection.connection).__module__.startswith("psycopg2"), type(connection.connection)
assert row[0] == datetime(2026, 7, 1, 12, tzinfo=UTC), row
assert row[1:] == (["a", 'b"\\\\'], ["00000000-0000-0000-0000-000000000001"], [0.5], 3), row
assert "asyncpg" not in sys.modules and "sqlalchemy" not in sys.modules
"""


@pytest.mark.parametrize("use_tz", [True, False])
def test_django_on_psycopg2(database: str, use_tz: bool) -> None:
    script = OTHER_DRIVER.format(use_tz=use_tz, database=kinds.django_database(database))
    run_alone(script)


def test_nothing_is_imported_that_the_user_does_not_have() -> None:
    script = """
import sqlite3, sys
from holdfast.store.recognise import recognise
from holdfast.store.statement import Statement

def plan():
    return (yield Statement("select :n", {"n": 1}))

assert recognise(sqlite3.connect(":memory:")).run(plan()) == [(1,)]
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"psycopg", "psycopg2", "asyncpg", "aiosqlite", "sqlalchemy", "django"}, loaded
"""
    run_alone(script)


def test_every_maker_is_in_the_list_that_users_see() -> None:
    words = {name.lower() for _, name in MAKERS} - {
        "basedatabasewrapper",
        "connectionproxy",
        "poolconnectionproxy",
    }
    assert all(word in ACCEPTED.lower() for word in words)
