"""A handler that settles its message together with its own writes: both are committed, or neither is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from holdfast import Context, Holdfast, LeaseLost, RetryPolicy, UsageError
from tests.worker.lab import Lab, auntil, settled, state_of, until

at_once = RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0)


@contextlib.contextmanager
def own(lab: Lab) -> Iterator[Any]:
    """The user's connection in a transaction, committed at the end, rolled back by an error."""
    with lab.connection() as db, db:
        yield db


@contextlib.asynccontextmanager
async def own_async(lab: Lab) -> AsyncIterator[Any]:
    if lab.sqlite:
        async with aiosqlite.connect(lab.url.removeprefix("sqlite:///"), timeout=60) as db:
            yield db
            await db.commit()
    else:
        async with await psycopg.AsyncConnection.connect(lab.url) as db:
            yield db


def insert(n: int) -> str:
    return f"insert into effect (n) values ({n})"


# --- Both or neither --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["complete", "transaction"])
async def test_a_def_handler_commits_both(lab: Lab, how: str) -> None:
    lab.make_effects()
    app = lab.app()

    @app.handler("a")
    def work(body: dict, ctx: Context) -> None:
        if how == "complete":
            with own(lab) as db:
                db.execute(insert(body["n"]))
                ctx.complete(on=db)
        else:
            with ctx.transaction() as db:
                db.execute(insert(body["n"]))
        assert ctx.completed

    app.publish_many(app.message("a", {"n": n}) for n in range(20))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(20), 1)
    assert {(row.outcome, row.attempts) for row in lab.rows("history")} == {("done", 1)}


@pytest.mark.parametrize("how", ["acomplete", "transaction"])
async def test_an_async_handler_commits_both(lab: Lab, how: str) -> None:
    lab.make_effects()
    app = lab.app()

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        if how == "acomplete":
            async with own_async(lab) as db:
                await db.execute(insert(body["n"]))
                await ctx.acomplete(on=db)
        else:
            async with ctx.transaction() as db:
                done = db.execute(insert(body["n"]))
                if not lab.sqlite:
                    await done
                await asyncio.sleep(0.001)

    app.publish_many(app.message("a", {"n": n}) for n in range(20))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(20), 1)


async def test_a_session_of_sqlalchemy_commits_both(pg_lab: Lab) -> None:
    lab = pg_lab
    lab.make_effects()
    app = lab.app()
    engine = create_async_engine(lab.url.replace("postgresql://", "postgresql+psycopg://"))

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sqlalchemy.text(insert(body["n"])))
            await ctx.acomplete(on=session)

    app.publish("a", {"n": 1})
    async with lab.working(app):
        await settled(lab)
    await engine.dispose()
    assert lab.effects() == {1: 1}


@pytest.mark.parametrize("how", ["complete", "transaction"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_error_undoes_both(lab: Lab, how: str, when: str) -> None:
    """`after` is after ctx.complete(...) and before the commit: the message was settled, and then it was not."""
    lab.make_effects()
    app, attempts = lab.app(), []

    @app.handler("a", retry=at_once)
    def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        with own(lab) if how == "complete" else ctx.transaction() as db:
            db.execute(insert(ctx.attempt))
            if ctx.attempt < 3 and when == "before":
                raise RuntimeError("not yet")
            if how == "complete":
                ctx.complete(on=db)
            if ctx.attempt < 3:
                raise RuntimeError("not yet")

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 2, 3]
    assert lab.effects() == {3: 1}
    (told,) = lab.rows("history")
    assert (told.attempts, told.failures) == (3, 2)


async def test_an_async_handler_undoes_both(lab: Lab) -> None:
    lab.make_effects()
    app, attempts = lab.app(), []

    @app.handler("a", retry=at_once)
    async def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        async with ctx.transaction() as db:
            done = db.execute(insert(ctx.attempt))
            if not lab.sqlite:
                await done
            if ctx.attempt < 3:
                raise RuntimeError("not yet")

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 2, 3]
    assert lab.effects() == {3: 1}


async def test_a_transaction_rolled_back_in_silence_does_not_lose_the_message(lab: Lab) -> None:
    lab.make_effects()
    app, attempts = lab.app(), []

    @app.handler("a", retry=at_once)
    def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        with lab.connection() as db:
            db.execute(insert(ctx.attempt))
            ctx.complete(on=db)
            if ctx.attempt < 3:
                db.rollback()
            else:
                db.commit()

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 2, 3]
    assert lab.effects() == {3: 1}
    (told,) = lab.rows("history")
    assert told.failures == 2


async def test_what_a_silent_rollback_is_called(sqlite_lab: Lab) -> None:
    lab = sqlite_lab
    lab.make_effects()
    app = lab.app()

    @app.handler("a", retry=RetryPolicy(attempts_max=1))
    def work(body: dict, ctx: Context) -> None:
        with lab.connection() as db:
            ctx.complete(on=db)
            db.rollback()

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    (dead,) = lab.rows("dead")
    assert dead.errors[0]["text"].startswith("RolledBack: ")


async def test_an_error_after_the_commit_is_logged_and_no_failure(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.make_effects()
    app, attempts = lab.app(), []

    @app.handler("a", retry=at_once)
    def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        with ctx.transaction() as db:
            db.execute(insert(1))
        raise RuntimeError(body["card"])

    @app.handler("b", retry=at_once)
    def work_too(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        with own(lab) as db:
            db.execute(insert(2))
            ctx.complete(on=db)
        raise RuntimeError(body["card"])

    app.publish("a", {"card": "4111-SECRET"})
    app.publish("b", {"card": "4111-SECRET"})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 1]
    assert lab.effects() == {1: 1, 2: 1}
    assert {(row.outcome, row.failures) for row in lab.rows("history")} == {("done", 0)}
    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(logged) == 2
    assert all("raised RuntimeError after the message had been settled" in line for line in logged)
    assert "SECRET" not in "".join(logged)


async def test_a_transaction_that_outlives_its_handler_is_waited_for(pg_lab: Lab) -> None:
    """A framework that commits when the handler has returned. The worker's exchange must not wait behind it."""
    lab = pg_lab
    lab.make_effects()
    app, attempts, others, later = lab.app(), [], [], []
    committed = asyncio.Event()

    @app.handler("a", retry=at_once)
    async def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        db = await psycopg.AsyncConnection.connect(lab.url)
        await db.execute(insert(1))
        await ctx.acomplete(on=db)

        async def commit_later() -> None:
            await auntil(lambda: len(others) == 10)
            await db.commit()
            await db.close()
            committed.set()

        later.append(asyncio.create_task(commit_later()))

    @app.handler("b")
    async def other(body: dict) -> None:
        others.append(1)

    app.publish("a", {})
    async with lab.working(app):
        await auntil(lambda: attempts)
        for _ in range(10):
            await app.apublish("b", {})
        await asyncio.wait_for(committed.wait(), 20)
        await settled(lab)
    assert attempts == [1]
    assert lab.effects() == {1: 1}


# --- What it may not do -----------------------------------------------------------------------------------------------


async def refusal(lab: Lab, app: Holdfast) -> str:
    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    (dead,) = lab.rows("dead")
    text: str = dead.errors[0]["text"]
    return text


async def test_a_blocking_block_in_an_async_handler_is_refused(lab: Lab) -> None:
    app = lab.app()

    @app.handler("a", retry=RetryPolicy(attempts_max=1))
    async def work(body: dict, ctx: Context) -> None:
        with ctx.transaction():
            raise AssertionError("never")

    assert "write `async with ctx.transaction()" in await refusal(lab, app)


async def test_a_blocking_connection_in_an_async_handler_is_refused_on_postgresql(pg_lab: Lab) -> None:
    app = pg_lab.app()

    @app.handler("a", retry=RetryPolicy(attempts_max=1))
    async def work(body: dict, ctx: Context) -> None:
        with own(pg_lab) as db:
            ctx.complete(on=db)

    assert "write `await ctx.acomplete(...)`" in await refusal(pg_lab, app)


async def test_a_blocking_connection_in_an_async_handler_works_on_sqlite(sqlite_lab: Lab) -> None:
    """There is no other kind of connection in the standard library, and streams must not make it fail by chance."""
    lab = sqlite_lab
    lab.make_effects()
    app = lab.app()

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        with own(lab) as db:
            db.execute(insert(body["n"]))
            ctx.complete(on=db)

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(60))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(60), 1)
    assert {row.attempts for row in lab.rows("history")} == {1}


async def test_after_completing_there_is_nothing_more_to_publish_or_mark(lab: Lab) -> None:
    lab.make_effects()
    app, refused = lab.app(), []

    @app.handler("a", steps=["one"])
    def work(body: dict, ctx: Context) -> None:
        with own(lab) as db:
            ctx.publish("b", {"n": 1})
            ctx.mark("one")
            ctx.complete(on=db)
            for late in (
                lambda: ctx.publish("b", {"n": 2}),
                lambda: ctx.mark("one"),
                lambda: ctx.complete(on=db),
                ctx.transaction,
            ):
                with pytest.raises(UsageError, match="has been completed already"):
                    late()
                refused.append(late)

    @app.handler("b")
    async def other(body: dict) -> None:
        assert body == {"n": 1}

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert len(refused) == 4
    assert sorted(row.type for row in lab.rows("history")) == ["a", "b"]
    assert [row.status & 8 for row in lab.rows("history") if row.type == "a"] == [8]


# --- A lease that is lost ---------------------------------------------------------------------------------------------


def take_away(lab: Lab) -> None:
    """As if another worker had taken the message over and given it back."""
    lab.query("update {message} set epoch = epoch + 2")
    lab.query("delete from {lease}")


@pytest.mark.covers("X36")
@pytest.mark.parametrize("how", ["complete", "transaction"])
async def test_a_lost_lease_rolls_the_users_writes_back(lab: Lab, how: str) -> None:
    lab.make_effects()
    app, starts, lost = lab.app(), [], []

    @app.handler("a")
    def work(body: dict, ctx: Context) -> None:
        starts.append(ctx.attempt)
        start = len(starts)
        if start == 1:
            take_away(lab)
        try:
            with own(lab) if how == "complete" else ctx.transaction() as db:
                db.execute(insert(start))
                if how == "complete":
                    ctx.complete(on=db)
        except LeaseLost as error:
            lost.append(error)
            raise

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert len(lost) == 1
    assert lab.effects() == {2: 1}
    (told,) = lab.rows("history")
    assert told.failures == 0, "a lost lease is nobody's failure"


async def test_nobody_can_commit_by_not_listening(pg_lab: Lab) -> None:
    lab = pg_lab
    lab.make_effects()
    app, starts = lab.app(), []

    @app.handler("a")
    def work(body: dict, ctx: Context) -> None:
        starts.append(ctx.attempt)
        start = len(starts)
        if start == 1:
            take_away(lab)
        with lab.connection() as db:
            db.execute(insert(start))
            with contextlib.suppress(LeaseLost):
                ctx.complete(on=db)
            with contextlib.suppress(psycopg.Error):
                db.commit()

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert len(starts) == 2
    assert lab.effects() == {2: 1}


# --- In runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.parametrize("how", ["complete", "transaction", "both"])
async def test_a_run_is_completed_message_by_message(lab: Lab, how: str) -> None:
    """With the user's own SQLite transaction open, nothing of ours can be written: nobody may wait for that."""
    lab.make_effects()
    app, seen = lab.app(), []

    @app.handler("a")
    def work(body: dict, ctx: Context) -> None:
        seen.append(body["n"])
        if how == "both" and body["n"] % 3 == 0:
            return  # settled by the worker, between others that settle themselves
        if how == "complete" or body["n"] % 3 == 1:
            with own(lab) as db:
                db.execute(insert(body["n"]))
                time.sleep(0.002)
                ctx.complete(on=db)
        else:
            with ctx.transaction() as db:
                db.execute(insert(body["n"]))

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(90))
    begun = time.monotonic()
    async with lab.working(app):
        await settled(lab)
    assert seen == list(range(90))
    assert time.monotonic() - begun < 25, "somebody waited for a lock"
    assert {row.attempts for row in lab.rows("history")} == {1}
    assert set(lab.effects().values()) == {1}


async def test_a_rollback_inside_a_run_stops_the_run_there(lab: Lab) -> None:
    lab.make_effects()
    app, seen = lab.app(), []

    @app.handler("a", retry=at_once)
    def work(body: dict, ctx: Context) -> None:
        seen.append(body["n"])
        with own(lab) as db:
            db.execute(insert(body["n"]))
            ctx.complete(on=db)
            if body["n"] == 5 and ctx.attempt == 1:
                raise RuntimeError("once")

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(10))
    async with lab.working(app):
        await settled(lab)
    assert seen == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert lab.effects() == dict.fromkeys(range(10), 1)


async def test_many_async_handlers_have_transactions_at_once(lab: Lab) -> None:
    """On SQLite they take turns; none of them holds up the loop, and none finds another's transaction open."""
    lab.make_effects()
    app = lab.app()

    @app.handler("a", concurrency=50)
    async def work(body: dict, ctx: Context) -> None:
        await asyncio.sleep(0)
        async with ctx.transaction() as db:
            done = db.execute(insert(body["n"]))
            if not lab.sqlite:
                await done
            await asyncio.sleep(0.002)

    app.publish_many(app.message("a", {"n": n}) for n in range(100))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(100), 1)
    assert {row.attempts for row in lab.rows("history")} == {1}


async def test_a_cancelled_transaction_is_rolled_back(lab: Lab) -> None:
    lab.make_effects()
    app, attempts = lab.app(), []

    @app.handler("a", retry=at_once, timeout=0.2)
    async def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        async with ctx.transaction() as db:
            done = db.execute(insert(ctx.attempt))
            if not lab.sqlite:
                await done
            if ctx.attempt == 1:
                await asyncio.sleep(60)

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == [1, 2]
    assert lab.effects() == {2: 1}


async def test_a_batch_completes_each_message(lab: Lab) -> None:
    lab.make_effects()
    app = lab.app()

    @app.handler("a", batch=5)
    def work(bodies: list[dict], contexts: list[Context]) -> None:
        with own(lab) as db:
            for body, ctx in zip(bodies, contexts, strict=True):
                if body["n"] % 2:
                    db.execute(insert(body["n"]))
                    ctx.complete(on=db)

    app.publish_many(app.message("a", {"n": n}) for n in range(10))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(1, 10, 2), 1)
    assert len(lab.rows("history")) == 10


async def test_transactions_need_a_database_file() -> None:
    app = Holdfast("sqlite:///:memory:")

    @app.handler("a", retry=RetryPolicy(attempts_max=1))
    def work(body: dict, ctx: Context) -> None:
        with ctx.transaction():
            raise AssertionError("never")

    app.publish("a", {})
    async with app.running():
        await auntil(app.operations.dead.list)
    app.close()


# --- Zombies ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X36")
@pytest.mark.parametrize("point", ["before", "after", "committing"])
def test_a_worker_that_was_stopped_longer_than_its_lease_changes_nothing(lab: Lab, point: str) -> None:
    """A process that is stopped in the middle of its handler, while another takes its message over (K01)."""
    if lab.sqlite and point != "before":
        pytest.skip("a stopped SQLite writer holds everybody's lock: see the next test")
    lab.make_effects()
    settings = {"lease": 1.0, "heartbeat": 0.3}
    zombie = lab.start(settings=settings)
    lab.publish({"n": 1, "stop": point}, type="effect", queue="effect")
    until(lambda: any(state_of(pid) == "T" for pid in zombie.children()), lab.said)
    (stopped,) = [pid for pid in zombie.children() if state_of(pid) == "T"]
    lab.start(settings=settings)
    until(lambda: lab.effects() == {1: 1}, lab.said)
    lab.until_empty()
    send(stopped, signal.SIGCONT)
    until(lambda: "another worker" in zombie.said or "had been settled" in zombie.said, lab.said)
    assert lab.effects() == {1: 1}
    assert [attempt for _, attempt, _ in lab.starts()] == [1, 2]
    (told,) = lab.rows("history")
    assert (told.outcome, told.attempts, told.failures) == ("done", 2, 0)


@pytest.mark.parametrize("point", ["after", "committing"])
def test_a_stopped_sqlite_writer_holds_its_lock_and_its_lease(sqlite_lab: Lab, point: str) -> None:
    """Nobody can take its message over meanwhile, so when it goes on, it is still its own."""
    lab = sqlite_lab
    lab.make_effects()
    settings = {"lease": 1.0, "heartbeat": 0.3}
    zombie = lab.start(settings=settings)
    lab.publish({"n": 1, "stop": point}, type="effect", queue="effect")
    until(lambda: any(state_of(pid) == "T" for pid in zombie.children()), lab.said)
    (stopped,) = [pid for pid in zombie.children() if state_of(pid) == "T"]
    other = contextlib.closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"), timeout=2.0))
    with other as db, pytest.raises(sqlite3.OperationalError, match="locked"):
        db.execute("begin immediate")
    send(stopped, signal.SIGCONT)
    lab.until_empty()
    assert lab.effects() == {1: 1}
    assert len(lab.starts()) == 1


def send(pid: int, number: int) -> None:
    import os

    os.kill(pid, number)


# --- Connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_many_handlers_share_a_few_connections(pg_lab: Lab, kind: str) -> None:
    """Found by measuring: each had a new one, which cost more than the work and used up those of the server."""
    lab = pg_lab
    lab.make_effects()
    app = lab.app(connections=3)
    used: set[int] = set()
    pid = "select pg_backend_pid()"

    @app.handler("a", name="async", concurrency=50)
    async def wait(body: dict, ctx: Context) -> None:
        async with ctx.transaction() as db:
            used.add((await (await db.execute(pid)).fetchone())[0])
            await db.execute(insert(body["n"]))

    @app.handler("b", name="def", concurrency=20)
    def block(body: dict, ctx: Context) -> None:
        with ctx.transaction() as db:
            used.add(db.execute(pid).fetchone()[0])
            db.execute(insert(body["n"]))

    app.publish_many(app.message("a" if kind == "async" else "b", {"n": n}) for n in range(100))
    async with lab.working(app):
        await settled(lab)
    assert lab.effects() == dict.fromkeys(range(100), 1)
    assert len(used) <= 3 + 4, "those of handlers, and the spare ones that they may find free"
