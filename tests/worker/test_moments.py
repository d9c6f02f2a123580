"""Moments in which the database refuses what it did before: a worker waits, says so once, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import tracemalloc
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast, LeaseLost, StoreTooSlow, StoreUnavailable
from holdfast.clock import MovableClock
from holdfast.model.work import Report, Want
from holdfast.processes import supervisor
from holdfast.rules.restarts import pause_before_restart
from holdfast.store.migrate import functions, split
from holdfast.store.moments import moment, sqlite_waits
from holdfast.store.plans import sequences
from holdfast.store.text import ends_transaction
from holdfast.worker.embedded import Running
from holdfast.worker.exchanges import portioned
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.trouble import Trouble
from tests.worker.lab import Lab, auntil, settled

quick = {"lease": 0.6, "heartbeat": 0.2, "grace": 1.0}


# --- The table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "what"),
    [
        ("08000 08003 08006 08P01 57P01 57P02 57P03 57P04 57P05 53100 53200 53300 58030 58P01", "wait"),
        ("25006 55P03 55006 28000 28P01 25P03 25P04", "wait"),
        ("40001 40P01 40003", "again"),
        ("57014", "smaller"),
        ("42883 42P01 42703 0A000 XX000", "changed"),
        ("23505 22P02 42501 42601 54000 P0001 21000 25P02", None),
    ],
)
def test_what_passes_by_itself(states: str, what: str | None) -> None:
    assert {moment(state) for state in states.split()} == {what}


def test_what_passes_by_itself_on_sqlite() -> None:
    waits = [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL]
    assert all(sqlite_waits(code) for code in waits)
    assert sqlite_waits(sqlite3.SQLITE_IOERR_FSYNC)
    assert not any(
        map(sqlite_waits, [sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_CORRUPT])
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/* /* */ */ commit", "COMMIT"),
        ("/* /* */ commit */ select 1", None),
        ("select a$x$; commit; --$x$", "COMMIT"),
        ("select $x$; commit; $x$", None),
        ("select 'a''; commit'", None),
        (r"select E'\'; commit; --'", None),
        (";;end", "END"),
        ("rollback work to a", None),
        ("rollback prepared 'x'", "ROLLBACK PREPARED"),
        ("prepare x as select 1", None),
        (
            "create function f() returns int begin atomic select case when true then 1 end; end; select 1",
            None,
        ),
        ("create function f() returns int begin atomic select 1; end; commit", "COMMIT"),
        ("select atomic from t; end", "END"),
        ("create function f() returns int begin /* a */ atomic select 1; end", None),
        ("select 1 -- ; commit", None),
        ("-- x\rcommit", "COMMIT"),
    ],
)
def test_sql_that_ends_a_transaction(text: str, words: str | None) -> None:
    assert ends_transaction(text) == words


def test_a_long_literal_is_looked_at_without_much_memory() -> None:
    text = "insert into t values ('" + "a;''" * 250_000 + "')"
    tracemalloc.start()
    assert ends_transaction(text) is None
    assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    tracemalloc.stop()


def test_a_worker_that_fails_again_and_again_is_started_less_often() -> None:
    pauses = [0.0]
    for _ in range(10):
        pauses.append(pause_before_restart(pauses[-1], ran=1.0))
    assert pauses[1:] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert pause_before_restart(60.0, ran=61.0) == 0.5


def test_a_moment_is_told_once_whoever_meets_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = MovableClock()
    trouble = Trouble(clock, "w")
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        for _ in range(5):
            trouble.met("exchange", StoreUnavailable("read only"))
            trouble.met("heartbeat", StoreUnavailable("read only"))
        clock.advance(seconds=12.5)
        trouble.over("heartbeat")
        assert trouble.since is not None
        trouble.over("exchange")
        trouble.over("exchange")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "The database cannot be used at the moment, and this worker waits: StoreUnavailable: read only",
        "The database can be used again, after 12.5 s",
    ]
    assert trouble.unreported() == ("It waited 12.5 s for the database: read only", 0)
    assert trouble.unreported() is None


def test_a_smaller_exchange_asks_every_queue_for_less() -> None:
    report = Report(1, want=[Want("a", 100), Want("b", 1)], total=101)
    less = portioned(report, 0.25)
    assert ([want.heads for want in less.want], less.total) == ([25, 1], 25)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class Moment:
    """An application with a worker in it, and what it has handled."""

    def __init__(self, lab: Lab, **settings: Any) -> None:
        self.app, self.seen = lab.app(**{**quick, **settings}), []
        seen = self.seen

        @self.app.handler("a", retry="immediate")
        async def work(body: dict) -> None:
            seen.append(body["n"])

    async def handles(self, n: int) -> None:
        await auntil(lambda: n in self.seen)


@contextlib.contextmanager
def read_only(lab: Lab) -> Iterator[None]:
    """As after a failover: connections are made anew, and all of them are read only."""
    with psycopg.connect(lab.url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"alter database {name} set default_transaction_read_only = on")
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'holdfast' and datname = current_database()"
        )
        try:
            yield
        finally:
            admin.execute("set default_transaction_read_only = off")
            admin.execute(f"alter database {name} reset default_transaction_read_only")


def plain(lab: Lab, n: int) -> None:
    lab.execute(f"insert into holdfast.message (type, body) values ('a', '{{\"n\": {n}}}')")


async def test_a_database_that_is_read_only_for_a_while(
    pg_lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab, it = pg_lab, Moment(pg_lab)
    async with it.app.running() as running:
        await it.app.apublish("a", {"n": 1})
        await it.handles(1)
        assert running.health.is_ready
        with read_only(lab):
            await auntil(lambda: running.health.state == "waiting")
            await auntil(lambda: "read-only" in (running.health.error or ""))
            with pytest.raises(StoreUnavailable, match="read-only"):
                it.app.publish("a", {"n": 3})
        await auntil(lambda: running.health.is_ready)
        plain(lab, 2)
        await it.handles(2)
        assert (running.health.restarts, running.worker.stuck) == (0, False)
        await auntil(lambda: [f for f in lab.operations.doctor() if f.name == "worker-waited"])
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([text for text in said if text.startswith("The database cannot be used")]) == 1
    assert len([text for text in said if text.startswith("The database can be used again")]) == 1


async def test_a_lock_that_is_held_for_longer_than_we_wait(pg_lab: Lab) -> None:
    lab, it = pg_lab, Moment(pg_lab)
    async with it.app.running() as running:
        await it.app.apublish("a", {"n": 1})
        await it.handles(1)
        with psycopg.connect(lab.url) as admin:
            admin.execute("lock table holdfast.message in access exclusive mode")
            await auntil(lambda: running.health.state == "waiting")
            assert "lock timeout" in str(running.health.error)
        await auntil(lambda: running.health.is_ready)
        plain(lab, 2)
        await it.handles(2)
        assert running.health.restarts == 0


async def test_an_exchange_that_waits_for_a_migration_goes_on_behind_it(pg_lab: Lab) -> None:
    """A migration puts functions anew while an exchange waits for its lock, in one that calls another by a name."""
    lab, it = pg_lab, Moment(pg_lab, lease=20.0, heartbeat=5.0)
    async with it.app.running() as running:
        await it.app.apublish("a", {"n": 1})
        await it.handles(1)
        with psycopg.connect(lab.url) as admin:
            admin.execute("lock table holdfast.message in access exclusive mode")
            waiting = (
                "select count(*) from pg_locks where not granted and database ="
                " (select oid from pg_database where datname = current_database())"
            )
            with psycopg.connect(lab.url, autocommit=True) as other:
                await auntil(lambda: other.execute(waiting).fetchone() != (0,))
            put_functions(admin, functions()[0].replace("holdfast.claim(", "holdfast.claim_anew("))
        plain(lab, 2)
        await it.handles(2)
        assert running.health.restarts == 0
    with psycopg.connect(lab.url) as admin:
        put_functions(admin, functions()[0])


def put_functions(admin: psycopg.Connection[Any], texts: str) -> None:
    admin.execute("set local check_function_bodies = off")
    ours = (
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'holdfast'::regnamespace"
        " and p.prorettype <> 'trigger'::regtype"
    )
    for (name,) in admin.execute(ours).fetchall():
        admin.execute(f"drop function {name}")
    for text in split(texts):
        admin.execute(text)


async def test_what_takes_too_long_is_done_in_smaller_parts(
    pg_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the database could not do more than 3 settlements or 4 claims in the time it has."""
    lab, it = pg_lab, Moment(pg_lab, lease=30.0, heartbeat=10.0)
    ours, sizes, given_up = it.app.store.engine, [], []
    exchange = ours.exchange

    def slow(report: Report) -> Any:
        if len(report.settlements) > 3 or report.total > 4:
            given_up.append(report.total)
            yield from cancelled()
        sizes.append((len(report.settlements), report.total))
        return (yield from exchange(report))

    def cancelled() -> Any:
        from holdfast.store.statement import Statement

        yield Statement("do $$ begin raise exception 'too long' using errcode = '57014'; end $$")

    monkeypatch.setattr(ours, "exchange", slow)
    it.app.publish_many(it.app.message("a", {"n": n}) for n in range(40))
    async with it.app.running() as running:
        await settled(lab)
        found = lab.operations.doctor
        await auntil(lambda: [f for f in found() if f.name == "statement-timeout"], lambda: str(found()))
        assert running.health.restarts == 0
    assert sorted(it.seen) == list(range(40))
    assert {row.attempts for row in lab.rows("history")} == {1}
    assert given_up[:3] == [500, 250, 125]
    assert len(given_up) < 15 < 20 <= len(sizes), "given up until it fits, and then no more"


async def test_one_settlement_that_takes_too_long_is_waited_for_and_fails_nobody(
    pg_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, it = pg_lab, Moment(pg_lab, lease=30.0, heartbeat=10.0)
    ours, tries = it.app.store.engine, []
    exchange = ours.exchange

    def slow(report: Report) -> Any:
        if report.settlements and len(tries) < 6:
            tries.append(len(report.settlements))
            raise StoreTooSlow("as the database says it")
        return (yield from exchange(report))

    monkeypatch.setattr(ours, "exchange", slow)
    it.app.publish("a", {"n": 1})
    async with it.app.running():
        await settled(lab)
    assert it.seen == [1]
    assert [(row.outcome, row.failures) for row in lab.rows("history")] == [("done", 0)]
    assert lab.rows("dead") == []


# --- An embedded worker that ends -------------------------------------------------------------------------------------


async def test_an_embedded_worker_that_ends_is_started_again(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    it = Moment(lab)
    async with it.app.running() as running:
        first = running.worker
        assert (running.health.state, running.health.error) == ("working", None)
        first.trouble.error = "a moment that is long over"
        first.calls.broken = RuntimeError("broken")
        first._changed.set()
        await auntil(lambda: running.health.state == "restarting")
        assert running.health.error == "RuntimeError: broken"
        assert "it is started again in 0.5 s" in caplog.text
        await auntil(lambda: running.health.is_ready)
        assert (running.health.restarts, running.worker is first) == (1, False)
        await it.app.apublish("a", {"n": 1})
        await it.handles(1)
        await auntil(lambda: [f for f in lab.operations.doctor() if f.name == "worker-restarted"])
    assert running.health.state == "stopped"
    assert lab.rows("worker") == []


async def test_the_application_may_stop_while_its_worker_waits_to_be_started(sqlite_lab: Lab) -> None:
    it = Moment(sqlite_lab)
    async with it.app.running() as running:
        running.worker.calls.broken = RuntimeError("broken")
        running.worker._changed.set()
        await auntil(lambda: running.health.state == "restarting")
    assert (running.health.state, running.health.restarts) == ("stopped", 0)


async def test_the_application_may_stop_while_its_worker_is_started_again_without_a_database(
    sqlite_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Moment(sqlite_lab)

    def fails(*_: Any, **options: Any) -> Any:
        raise StoreUnavailable("gone")

    async with it.app.running() as running:
        monkeypatch.setattr(sequences, "mend", fails)
        running.worker.calls.broken = RuntimeError("broken")
        running.worker._changed.set()
        await auntil(lambda: running.worker.trouble.error == "gone")
        assert (running.health.state, running.health.error) == ("restarting", "RuntimeError: broken")
    assert running.health.state == "stopped"


async def test_connections_are_closed_whatever_the_worker_ends_with(
    sqlite_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, closed = Moment(sqlite_lab), []
    aclose = it.app.store.aclose

    async def noted() -> None:
        closed.append(True)
        await aclose()

    async def breaks(running: Running) -> None:
        running.worker.started.set()
        await running._stopping.wait()
        raise RuntimeError("broken")

    monkeypatch.setattr(it.app.store, "aclose", noted)
    monkeypatch.setattr(Running, "_run_one", breaks)
    with pytest.raises(RuntimeError, match="broken"):
        async with it.app.running():
            pass
    assert closed == [True]


@pytest.mark.one_postgres
async def test_what_is_wrong_at_the_start_is_raised(pg_lab: Lab) -> None:
    app = Holdfast(pg_lab.url.replace("/hf_", "/no_such_"))
    with pytest.raises(StoreUnavailable, match="does not exist"):
        async with app.running():
            raise AssertionError("never")


def test_worker_processes_that_wait_for_their_database_say_so_once(
    sqlite_lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = sqlite_lab.app()
    errors = iter(["no server", "no server", "wrong password", "wrong password"])

    def prepare() -> None:
        for text in errors:
            raise StoreUnavailable(text)

    monkeypatch.setattr(app, "prepare", prepare)
    monkeypatch.setattr(supervisor, "PAUSE_MIN", 0.0)
    supervisor.Supervisor(app, "shop:app")._prepare()
    told = [each.getMessage() for each in caplog.records if "not there yet" in each.getMessage()]
    assert [text.rsplit(": ", 1)[1] for text in told] == ["no server", "wrong password"]


# --- A worker stopped inside ctx.transaction() ------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_worker_stopped_inside_its_transaction_has_lost_its_lease(
    pg_lab: Lab, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """The server ends a transaction in which nothing happens for a lease. That is told as what it is."""
    lab = pg_lab
    lab.make_effects()
    monkeypatch.setattr(Heartbeat, "_beat", lambda self: True)  # as in a process that stands still
    app = lab.app(**quick)
    raised: list[BaseException] = []
    gone = "select count(*) from pg_stat_activity where pid = {}"

    def stand_still(pid: int) -> None:
        while lab.execute(gone.format(pid))[0][0]:
            pass

    @app.handler("sync", retry="immediate")
    def sync(body: dict, ctx: Context) -> None:
        try:
            with ctx.transaction() as db:
                db.execute("insert into effect (n) values (1)")
                if ctx.attempt == 1:
                    stand_still(db.info.backend_pid)
                    db.execute("insert into effect (n) values (2)")
        except BaseException as error:
            raised.append(error)
            raise

    @app.handler("async", retry="immediate")
    async def asynchronous(body: dict, ctx: Context) -> None:
        try:
            async with ctx.transaction() as db:
                await db.execute("insert into effect (n) values (1)")
                if ctx.attempt == 1:
                    stand_still(db.info.backend_pid)
                    await db.execute("insert into effect (n) values (2)")
        except BaseException as error:
            raised.append(error)
            raise

    app.publish("async" if is_async else "sync", {})
    async with lab.working(app):
        await settled(lab)
    # An async handler whose lease has lapsed may be cancelled before the driver says anything.
    assert [type(error) for error in raised] in (
        [[LeaseLost], [asyncio.CancelledError]] if is_async else [[LeaseLost]]
    )
    assert lab.effects() == {1: 1}
    assert [(row.outcome, row.failures) for row in lab.rows("history")] == [("done", 0)]
