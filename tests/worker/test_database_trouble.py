"""The database goes away, forgets to answer, is locked, or refuses: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.store import connecting_sqlite
from holdfast.store.plans import engine
from tests import servers
from tests.worker.lab import Lab, auntil, settled, until
from tests.worker.proxy import Proxy

at_once = RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0)


# --- Answers that never come ------------------------------------------------------------------------------------------


@pytest.fixture
def proxied(pg_lab: Lab) -> Iterator[tuple[Lab, Proxy, Holdfast]]:
    """An application behind a proxy; the lab looks past it."""
    proxy = Proxy(pg_lab.url)
    app = Holdfast(proxy.dsn)
    yield pg_lab, proxy, app
    app.close()
    proxy.close()


@pytest.mark.covers("X36")
@pytest.mark.parametrize("stream", [None, "s"])
async def test_the_answer_to_a_settlement_is_lost(proxied: Any, stream: str | None) -> None:
    """The exchange was committed, and nobody heard of it (K35)."""
    lab, proxy, app = proxied
    starts: list[int] = []

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        starts.append(body["n"])
        if body["n"] == 5:
            proxy.lose_answer_to(b"the mark")
            ctx.publish("b", {"mark": "the mark"})

    @app.handler("b")
    async def emitted(body: dict) -> None:
        starts.append(-1)

    app.publish_many(app.message("a", {"n": n}, stream=stream) for n in range(20))
    async with lab.working(app):
        await settled(lab)
    assert proxy.cuts == 1
    assert Counter(starts) == dict.fromkeys([-1, *range(20)], 1)
    assert {(row.attempts, row.outcome) for row in lab.rows("history")} == {(1, "done")}
    if stream:
        assert [n for n in starts if n >= 0] == list(range(20))


@pytest.mark.parametrize("stream", [None, "s"])
async def test_the_answer_with_new_work_is_lost(proxied: Any, stream: str | None) -> None:
    """What was handed out and never heard of goes back; nobody waits for its lease to lapse, and it is no attempt."""
    lab, proxy, app = proxied
    starts: list[int] = []

    @app.handler("a")
    async def work(body: dict) -> None:
        starts.append(body["n"])

    proxy.lose_answer_with(b"the mark")
    app.publish_many(app.message("a", {"n": n, "mark": "the mark"}, stream=stream) for n in range(10))
    async with lab.working(app):
        await settled(lab)
    assert proxy.cuts == 1
    assert sorted(starts) == list(range(10))
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}


async def test_an_exchange_is_still_on_its_way_when_the_connection_breaks(proxied: Any) -> None:
    """The server goes on with it after the worker has come back: the worker waits for its end before it looks."""
    lab, proxy, app = proxied
    starts: list[int] = []
    held = psycopg.connect(lab.url)

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        starts.append(body["n"])
        if body["n"] == 2:
            # The settlement of this message will wait for a lock, and the connection break meanwhile.
            held.execute("select 1 from holdfast.message where seq = %s for update", [ctx.leased.message.seq])
            proxy.hang_up_after(b"the mark")
            ctx.publish("b", {"mark": "the mark"})

    @app.handler("b")
    async def emitted(body: dict) -> None:
        starts.append(-1)

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(6))
    async with lab.working(app):
        await auntil(lambda: proxy.cuts == 1, lab.describe)
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        # The old exchange waits for our lock, and the worker's question for the old exchange.
        await auntil(lambda: lab.execute(waiting)[0][0] >= 2, lab.describe)
        held.rollback()
        await settled(lab)
    held.close()
    assert Counter(starts) == dict.fromkeys([-1, *range(6)], 1)
    assert [n for n in starts if n >= 0] == list(range(6))
    assert {(row.attempts, row.outcome) for row in lab.rows("history")} == {(1, "done")}


@pytest.mark.covers("X36")
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_the_answer_to_a_handlers_commit_is_lost(proxied: Any, kind: str) -> None:
    """ctx.transaction() raises, for nobody can know; then the lease is asked, and it was committed: no second time."""
    lab, proxy, app = proxied
    lab.make_effects()
    starts: list[int] = []

    if kind == "async":

        @app.handler("a", retry=at_once)
        async def work(body: dict, ctx: Context) -> None:
            starts.append(ctx.attempt)
            async with ctx.transaction() as db:
                await db.execute("insert into effect (n) values (1)")
                proxy.lose_answer_to(b"COMMIT")

    else:

        @app.handler("a", retry=at_once)
        def work_too(body: dict, ctx: Context) -> None:
            starts.append(ctx.attempt)
            with ctx.transaction() as db:
                db.execute("insert into effect (n) values (1)")
                proxy.lose_answer_to(b"COMMIT")

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert proxy.cuts == 1
    assert starts == [1]
    assert lab.effects() == {1: 1}
    assert [(row.attempts, row.failures) for row in lab.rows("history")] == [(1, 0)]


@pytest.mark.covers("X36")
async def test_a_handler_commits_while_the_worker_looks_where_its_leases_stand(
    proxied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease has moved on since the store was asked. It is not lost, and what runs under it goes on."""
    lab, proxy, app = proxied
    starts: list[int] = []
    in_transaction, looked, moved, landed = (asyncio.Event() for _ in range(4))
    standing, arun = engine.standing, app.store.arun

    def look(*arguments: Any) -> Any:
        answer = yield from standing(*arguments)
        looked.set()
        return answer

    async def slowly(make: Any, **options: Any) -> Any:
        answer = await arun(make, **options)
        if looked.is_set():  # the answer is older than what the handler commits now
            await moved.wait()
        return answer

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        starts.append(body["n"])
        if body["n"] == 1:
            async with ctx.transaction():
                in_transaction.set()
                await looked.wait()
        if body["n"] == 2:
            moved.set()
            await landed.wait()

    @app.handler("b")
    async def loses(body: dict, ctx: Context) -> None:
        proxy.lose_answer_to(b"the mark")
        ctx.publish("c", {"mark": "the mark"})

    @app.handler("c")
    async def after_the_look(body: dict) -> None:
        landed.set()

    monkeypatch.setattr(engine, "standing", look)
    monkeypatch.setattr(app.store, "arun", slowly)
    async with lab.working(app):
        app.publish("a", {"n": 0})  # after it, messages of a stream are claimed in runs
        await settled(lab)
        app.publish_many(app.message("a", {"n": n}, stream="s") for n in (1, 2, 3))
        await asyncio.wait_for(in_transaction.wait(), 30)
        app.publish("b", {})
        await settled(lab)
    assert proxy.cuts == 1
    assert starts == [0, 1, 2, 3]
    assert {(row.attempts, row.outcome) for row in lab.rows("history")} == {(1, "done")}


@pytest.mark.faults("storms")
@pytest.mark.covers("X36")
async def test_hundreds_of_answers_are_lost(proxied: Any) -> None:
    lab, proxy, app = proxied
    lab.make_effects()
    starts: Counter[int] = Counter()
    dice = random.Random(3)

    @app.handler("a", retry=at_once.but(attempts_max=10))
    async def work(body: dict, ctx: Context) -> None:
        starts[body["n"]] += 1
        if body["n"] % 3 == 0:
            async with ctx.transaction() as db:
                await db.execute(f"insert into effect (n) values ({body['n']})")
        if dice.random() < 0.1:
            proxy.lose_answer_with(b"holdfast-mark")
        elif dice.random() < 0.1:
            proxy.lose_answer_to(b"COMMIT")

    app.publish_many(
        app.message("a", {"n": n, "mark": "holdfast-mark"}, stream=f"s{n % 7}" if n % 2 else None)
        for n in range(3000)
    )
    async with lab.working(app):
        await auntil(lab.is_empty, lab.describe, 600)
    assert proxy.cuts > 100
    assert lab.rows("dead") == []
    assert lab.effects() == dict.fromkeys(range(0, 3000, 3), 1)
    assert {row.outcome for row in lab.rows("history")} == {"done"}
    assert len(lab.rows("history")) == 3000
    # A handler whose connection breaks before its COMMIT fails, and is tried again; nothing else starts twice.
    assert {n for n, count in starts.items() if count > 1} <= set(range(0, 3000, 3))


# --- A server that is killed ------------------------------------------------------------------------------------------


@pytest.fixture
def faulty(postgres_faulty: servers.Server, tmp_path: Path) -> Iterator[tuple[Lab, servers.Server]]:
    dsn = postgres_faulty.create_database()
    Holdfast(dsn).migrate()
    lab = Lab(dsn, tmp_path)
    yield lab, postgres_faulty
    lab.end_processes()
    lab.close()


def kills(lab: Lab, server: servers.Server, *, times: int, messages: int) -> None:
    lab.make_effects()
    lab.publish(
        *({"n": n} for n in range(messages)),
        type="effect",
        queue="effect",
        stream=lambda body: f"s{body['n'] % 10}" if body["n"] % 2 else None,
    )
    # Every kill may cost a handler an attempt, and the same one several times.
    worker = lab.start(processes=2, starts_max=times + 3, settings={"lease": 5.0, "heartbeat": 1.0})
    for turn in range(times):
        target = messages * (turn + 1) // (times + 1)
        until(lambda target=target: done(lab) >= target, lab.said)
        server.kill9()
        server.start()
    until(lambda: done(lab) == messages, lab.said, 120)
    assert lab.effects() == dict.fromkeys(range(messages), 1)
    assert [row for row in lab.rows("history") if row.outcome != "done"] == []
    assert lab.rows("dead") == []
    assert worker.popen.poll() is None, "the worker lived through it"


def done(lab: Lab) -> int:
    """How many have ended; 0 while the server is away."""
    with contextlib.suppress(Exception):
        count: int = lab.execute("select count(*) from holdfast.history")[0][0]
        return count
    return 0


@pytest.mark.covers("X36")
def test_postgresql_is_killed_twice_under_load(faulty: tuple[Lab, servers.Server]) -> None:
    """With its two processes at work. Effects once, nothing lost, and the worker goes on by itself."""
    kills(*faulty, times=2, messages=600)


@pytest.mark.faults("storms")
@pytest.mark.covers("X36")
def test_postgresql_is_killed_again_and_again(faulty: tuple[Lab, servers.Server]) -> None:
    kills(*faulty, times=20, messages=4000)


@pytest.mark.covers("B14")
async def test_a_worker_waits_for_a_database_that_is_not_there_yet(
    faulty: tuple[Lab, servers.Server], caplog: pytest.LogCaptureFixture
) -> None:
    lab, server = faulty
    app, seen = lab.app(), []

    @app.handler("a")
    async def work(body: dict) -> None:
        seen.append(body)

    app.publish("a", {"n": 1})
    server.kill9()
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    await auntil(lambda: "The database is not there yet" in caplog.text)
    await asyncio.to_thread(server.start)
    await auntil(lambda: seen == [{"n": 1}])
    worker.stop()
    await task


async def test_a_worker_stops_although_the_database_is_gone(faulty: tuple[Lab, servers.Server]) -> None:
    lab, server = faulty
    app = lab.app(grace=0.5)
    begun = asyncio.Event()

    @app.handler("a")
    async def work(body: dict) -> None:
        begun.set()
        await asyncio.sleep(600)

    app.publish("a", {})
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 30)
    server.kill9()
    worker.stop()
    await asyncio.wait_for(task, 0.5 + 2.0 + 10.0)  # 10 s for a machine that has other things to do


async def test_a_worker_stops_although_the_network_swallows_everything(proxied: Any) -> None:
    """No error comes, and no answer: what the worker waits for is left, soon after the grace is over."""
    lab, proxy, _ = proxied
    app = Holdfast(proxy.dsn, grace=0.5)
    begun = asyncio.Event()

    @app.handler("a")
    async def work(body: dict) -> None:
        begun.set()
        await asyncio.sleep(600)

    app.publish("a", {})
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 30)
    proxy.go_silent()
    worker.stop()
    await asyncio.wait_for(task, 0.5 + 2.0 + 10.0)  # 10 s for a machine that has other things to do
    (row,) = lab.rows("message")
    assert row.attempts == 0
    assert len(lab.rows("lease")) == 1, "nobody could be told: it will lapse"


@pytest.mark.parametrize("done", [False, True])
async def test_a_worker_cancelled_in_the_middle_of_an_exchange(proxied: Any, done: bool) -> None:
    """It finds out what became of it before it leaves, and hands in what was not done."""
    lab, proxy, app = proxied
    starts: list[int] = []

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        starts.append(body["n"])
        ctx.publish("nobody", {"mark": f"mark {body['n']}."})

    held = psycopg.connect(lab.url)
    app.publish("a", {"n": 1})
    app.prepare()
    if not done:
        held.execute("lock table holdfast.history in exclusive mode")
    else:
        proxy.lose_answer_to(b"mark 1.")
    task = asyncio.create_task(app.worker().run())
    await auntil(lambda: starts)
    waiting = "select count(*) from pg_locks where not granted"
    if not done:
        await auntil(lambda: lab.execute(waiting)[0][0] == 1)
    else:
        await auntil(lambda: proxy.cuts == 1)
    task.cancel()
    held.rollback()
    held.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lab.rows("lease") == []
    assert starts == [1]
    assert [row.outcome for row in lab.rows("history")] == ["done"]


# --- SQLite, locked ---------------------------------------------------------------------------------------------------


async def test_sqlite_locked_for_a_while(sqlite_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than we wait for it: the exchange fails, is tried again, and nothing is done twice."""
    lab = sqlite_lab
    monkeypatch.setattr(connecting_sqlite, "BUSY_SECONDS", 0.1)
    app, starts = lab.app(), []
    locked = threading.Event()

    @app.handler("a")
    async def work(body: dict) -> None:
        starts.append(body["n"])
        if body["n"] == 10:
            threading.Thread(target=hold_lock).start()
            locked.wait(10)

    def hold_lock() -> None:
        with contextlib.closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"), timeout=30)) as db:
            db.execute("begin immediate")
            locked.set()
            threading.Event().wait(1.0)
            db.rollback()

    app.publish_many(app.message("a", {"n": n}, stream=f"s{n % 3}") for n in range(60))
    async with lab.working(app):
        await settled(lab)
    assert Counter(starts) == dict.fromkeys(range(60), 1)
    assert {row.attempts for row in lab.rows("history")} == {1}


# --- What the database refuses ----------------------------------------------------------------------------------------


def with_a_taken_id(lab: Lab, app: Holdfast) -> Any:
    """An id that the database refuses to store again: it is pending in a queue that nobody drains."""
    taken = uuid4()
    other = lab.app()

    @other.handler("taken")
    async def nobody_drains_this(body: dict) -> None: ...

    other.publish("taken", {}, id=taken)
    return taken


@pytest.mark.covers("C7", "C25", "X61")
async def test_an_emission_that_the_database_refuses_fails_only_its_own_message(lab: Lab) -> None:
    app, starts = lab.app(), []
    taken = with_a_taken_id(lab, app)

    @app.handler("a", retry=at_once)
    async def work(body: dict, ctx: Context) -> None:
        starts.append(body["n"])
        if body["n"] % 10 == 3:
            ctx.publish("taken", {}, id=taken)

    app.publish_many(app.message("a", {"n": n}) for n in range(40))
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("dead")) == 4, lab.describe)
        await auntil(lambda: len(lab.rows("history")) == 36, lab.describe)
    assert Counter(starts) == {n: 3 if n % 10 == 3 else 1 for n in range(40)}
    assert {(row.reason, row.failures) for row in lab.rows("dead")} == {(7, 3)}
    texts = {error["text"].split(":")[0] for row in lab.rows("dead") for error in row.errors}
    assert texts == {"IdTaken"}, "the driver's own words"
    assert {row.attempts for row in lab.rows("history")} == {1}


async def test_an_exchange_that_was_handed_in_in_parts_asks_for_work_all_the_same(lab: Lab) -> None:
    """Found in review: a worker that was to stop when nothing was left stopped there."""
    app, starts = lab.app(), []
    taken = with_a_taken_id(lab, app)

    @app.handler("a", retry=at_once, concurrency=1)
    async def work(body: dict, ctx: Context) -> None:
        starts.append((body["n"], ctx.attempt))
        if body["n"] == 0 and ctx.attempt == 1:
            ctx.publish("taken", {}, id=taken)

    app.publish_many(app.message("a", {"n": n}) for n in range(3))
    await app.worker(until_idle=True).run()
    assert sorted(starts) == [(0, 1), (0, 2), (1, 1), (2, 1)]


@pytest.mark.covers("C7")
async def test_a_refused_emission_inside_a_run_keeps_the_order(lab: Lab) -> None:
    """What ran behind it has run ahead of its retry: it runs again, in order, and what was before it does not."""
    app, starts = lab.app(), []
    taken = with_a_taken_id(lab, app)

    @app.handler("a", retry=at_once)
    async def work(body: dict, ctx: Context) -> None:
        starts.append((body["n"], ctx.attempt))
        if body["n"] == 3 and ctx.attempt == 1:
            ctx.publish("taken", {}, id=taken)

    @app.handler("warm up")
    async def warm_up(body: dict) -> None: ...

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(8))
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 8, lab.describe)
    before = [start for start in starts if start[0] < 3]
    assert before == [(0, 1), (1, 1), (2, 1)]
    last = {n: place for place, (n, _) in enumerate(starts)}
    assert [last[n] for n in range(8)] == sorted(last.values())
    assert starts.count((3, 1)) == starts.count((3, 2)) == 1
    assert lab.rows("dead") == []


async def test_a_database_without_our_tables_is_told_at_once(sqlite_lab: Lab) -> None:
    from holdfast import NotMigrated

    lab = sqlite_lab
    app = lab.app()

    @app.handler("a")
    async def work(body: dict) -> None: ...

    await asyncio.to_thread(app.prepare)
    task = asyncio.create_task(app.worker().run())
    await asyncio.sleep(0.1)
    lab.execute("alter table holdfast_lease rename to gone")
    app.publish("a", {})
    with pytest.raises(NotMigrated):
        await asyncio.wait_for(task, 30)
    lab.execute("alter table gone rename to holdfast_lease")
