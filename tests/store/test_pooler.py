"""Behind PgBouncer in transaction mode: everything works, the limits hold, and who does not say so is told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast, InvalidSettings
from holdfast.errors import StoreUnavailable
from holdfast.model import names
from holdfast.store.plans import guards
from tests import poolers
from tests.databases import or_exit

pytestmark = [pytest.mark.one_postgres]


@pytest.fixture
def pooler(postgres_dsn: str) -> Iterator[str]:
    or_exit(poolers.program)
    with poolers.pooled(postgres_dsn) as url:
        yield url


@pytest.fixture
def app(pooler: str) -> Iterator[Holdfast]:
    app = Holdfast(f"{pooler}?pooler=transaction", retry="immediate")
    app.migrate()
    yield app
    app.close()


def test_nothing_is_lost_by_many_publishers_and_a_worker(app: Holdfast, postgres_dsn: str) -> None:
    """The defect sec_pgbouncer: 197 of 360 publishes failed."""
    done: list[tuple[int, int]] = []

    @app.handler("order.placed")
    async def place(order: dict[str, int], ctx: Context) -> None:
        ctx.publish("order.counted", order)
        async with ctx.transaction() as db:
            await db.execute("insert into mine (k, n) values (%s, %s)", (order["k"], order["n"]))
        done.append((order["k"], order["n"]))

    @app.handler("order.counted")
    def count(order: dict[str, int], ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute("update counted set n = n + 1")

    @app.handler("order.bad")
    async def bad(order: dict[str, int]) -> None:
        raise ValueError("no")

    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute("create table mine (k int, n int, primary key (k, n))")
        db.execute("create table counted (n int)")
        db.execute("insert into counted values (0)")
    app.prepare()
    errors: list[Exception] = []

    def publish(k: int) -> None:
        try:
            for n in range(40):
                app.publish("order.placed", {"k": k, "n": n}, stream=f"s{k}", dedupe=f"{k}-{n}")
            app.publish("order.bad", {}, delay=0.01, stream=f"b{k}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    drain(app)
    for k in range(6):
        assert [n for stream, n in done if stream == k] == list(range(40))
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        assert db.execute("select count(*) from mine").fetchone() == (240,)
        assert db.execute("select n from counted").fetchone() == (240,)
        assert db.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
    assert app.operations.status().dead == 6
    app.operations.dead.redrive(app.operations.dead.list()[0].id)
    assert app.operations.housekeeping() is not None


def drain(app: Holdfast) -> None:
    async def run() -> None:
        for _ in range(50):
            await app.worker(until_idle=True).run()
            if not app.operations.messages.find():
                break
            await asyncio.sleep(0.02)
        await app.store.aclose()

    asyncio.run(run())


def settings_of(app: Holdfast) -> dict[str, Any]:
    return app.store.run(guards.limits())


def test_the_limits_hold_in_each_transaction_and_stay_in_it(app: Holdfast, pooler: str) -> None:
    wanted = {
        "idle_in_transaction_session_timeout": 30_000,
        "lock_timeout": 30_000,
        "statement_timeout": 60_000,
    }
    for _ in range(15):  # through all sessions of the server
        assert settings_of(app) == wanted
    with psycopg.connect(pooler, autocommit=True, prepare_threshold=None) as db:
        for _ in range(15):
            assert db.execute("show lock_timeout").fetchone() == ("0",)
    with app.store.transaction() as (db, _):
        assert db.execute("show idle_in_transaction_session_timeout").fetchone() == ("30s",)


def test_a_transaction_that_stands_still_is_ended_by_the_server(app: Holdfast, pooler: str) -> None:
    hasty = Holdfast(app.url, lease=0.4, heartbeat=0.1)
    with pytest.raises(StoreUnavailable):
        stand_still(hasty, pooler)
    hasty.close()


def stand_still(app: Holdfast, pooler: str) -> None:
    with app.store.transaction() as (db, _):
        db.execute("select pg_advisory_xact_lock(42)")
        with psycopg.connect(pooler, prepare_threshold=None) as other:
            # When the server has ended the transaction above.
            other.execute("select pg_advisory_xact_lock(42)")
        db.execute("select 1")


def test_the_isolation_is_ours_whatever_that_of_the_database(app: Holdfast, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute("alter role postgres in database \"%s\" set default_transaction_isolation = 'serializable'".replace(
            "%s", db.info.dbname).encode())  # fmt: skip
        try:
            with poolers.pooled(postgres_dsn) as url:
                own = Holdfast(f"{url}?pooler=transaction")
                with own.store.transaction() as (inside, _):
                    assert inside.execute("show transaction_isolation").fetchone() == ("read committed",)
                own.publish("a.b", {}, stream="s")
                own.close()
        finally:
            db.execute(f'alter role postgres in database "{db.info.dbname}" reset all'.encode())


def test_who_does_not_say_that_there_is_a_pooler_is_told(
    app: Holdfast, pooler: str, postgres_dsn: str
) -> None:
    """As PgBouncer comes it refuses the connection; if it drops what it does not know, the limits would be gone."""
    direct = Holdfast(pooler)
    with pytest.raises(InvalidSettings, match=r"unsupported startup parameter.*\?pooler=transaction"):
        direct.publish("a.b", {})
    with pytest.raises(InvalidSettings, match=r"\?pooler=transaction"):
        asyncio.run(direct.apublish("a.b", {}))
    with poolers.pooled(postgres_dsn, ignored="extra_float_digits, options") as silent:
        with pytest.raises(InvalidSettings, match=r"did not reach the server.*\?pooler=transaction"):
            Holdfast(silent).prepare()
        Holdfast(f"{silent}?pooler=transaction").prepare()
    Holdfast(postgres_dsn).prepare()


def test_the_doctor_and_the_command_line_go_through_it(app: Holdfast) -> None:
    found = {each.name for each in app.operations.doctor() if each.severity == "error"}
    assert found <= {"fsync", "full_page_writes"}
    message = app.publish("nobody.knows", {})
    assert app.operations.why(message.id)
    assert app.migrate() == []


def test_a_worker_finds_work_without_being_told(app: Holdfast) -> None:
    """There is no LISTEN: it looks."""
    done = asyncio.Event()

    @app.handler("a.b")
    async def handle(body: dict[str, Any]) -> None:
        done.set()

    async def run() -> None:
        async with app.running():
            await asyncio.sleep(0.3)  # it sleeps
            await app.apublish("a.b", {})
            async with asyncio.timeout(20):
                await done.wait()

    with contextlib.closing(app):
        asyncio.run(run())


@pytest.mark.parametrize("said", ["session", "", "true", "transaction&pooler=transaction"])
def test_other_words_are_refused(said: str) -> None:
    with pytest.raises(InvalidSettings, match="`pooler` is `transaction`"):
        Holdfast(f"postgresql://h/d?pooler={said}")
    assert names.pooler("postgresql://h/d") == ("postgresql://h/d", False)
