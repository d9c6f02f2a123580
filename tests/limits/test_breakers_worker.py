"""Handlers behind breakers and rates: what is claimed, what begins, what it costs while a dependency is down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.model.message import Reason
from tests.limits.cluster import Cluster, Down


@pytest.fixture
def app(cluster: Cluster) -> Any:
    cluster_tables(cluster)
    app = Holdfast(cluster.url, clock=cluster.clock)
    yield app
    app.close()


def cluster_tables(cluster: Cluster) -> None:
    if cluster.store.engine.dialect == "postgres":
        cluster.query(
            "truncate holdfast.message, holdfast.lease, holdfast.stream, holdfast.queue, holdfast.subscription, "
            "holdfast.dead, holdfast.death, holdfast.history, holdfast.dedupe, holdfast.worker"
        )


def drain(app: Holdfast) -> None:
    app.prepare()
    asyncio.run(drained(app))


async def drained(app: Holdfast) -> None:
    await app.worker(until_idle=True).run()
    await app.store.aclose()


def pending(app: Holdfast) -> list[Any]:
    return list(app.operations.messages.find(limit=1000))


# --- A dependency is down ---------------------------------------------------------------------------------------------


@pytest.mark.covers("X30", "V26", "X44")
@pytest.mark.parametrize("kind", ["async", "def"])
def test_while_it_is_open_nothing_is_claimed_and_no_attempt_is_spent(
    app: Holdfast, cluster: Cluster, kind: str
) -> None:
    server, started = {"up": False}, []
    app.breaker("llm")

    def ask(n: int) -> None:
        started.append(n)
        if not server["up"]:
            raise Down

    if kind == "async":

        @app.handler("question", name="ask", breaker="llm", retry="patient", concurrency=1)
        async def ask_async(n: int) -> None:
            ask(n)
    else:

        @app.handler("question", name="ask", breaker="llm", retry="patient", concurrency=1)
        def ask_blocking(n: int) -> None:
            ask(n)

    others = []

    @app.handler("note")
    async def note(n: int) -> None:
        others.append(n)

    for n in range(40):
        app.publish("question", n)
    app.publish("note", 1)
    drain(app)
    assert len(started) == 10  # then it opened
    assert others == [1]
    costs = Counter((each.attempts, each.failures) for each in pending(app))
    assert costs == {(1, 1): 10, (0, 0): 30}

    cluster.advance(seconds=29)
    app.publish("note", 2)
    drain(app)
    assert (len(started), others) == (10, [1, 2])  # nothing was claimed: attempts are as they were
    assert Counter((each.attempts, each.failures) for each in pending(app)) == costs

    cluster.advance(seconds=1)  # a trial, which fails
    drain(app)
    assert len(started) == 11
    assert Counter((each.attempts, each.failures) for each in pending(app)) == costs
    (tried,) = [each for each in pending(app) if each.id == tried_id(app)]
    assert tried.attempts == 0

    server["up"] = True
    cluster.advance(seconds=60)
    drain(app)
    assert 11 + 3 < len(started) <= 11 + 3 + 10  # three trials, it closes, and a second's worth of ten begin
    for _ in range(5):
        cluster.advance(seconds=1)
        drain(app)
    assert list(app.operations.dead.list()) == []
    assert pending(app) == []
    assert len(started) == 11 + 40


def tried_id(app: Holdfast) -> Any:
    """The one message with an error in its history and no failure."""
    found = []
    for each in pending(app):
        if each.failures == 0:
            for _, content in app.operations.messages.show(each.id).pending:
                if content.errors:
                    assert content.errors[-1].reason is Reason.TRANSPORT_UNAVAILABLE
                    found.append(each.id)
    (only,) = found
    return only


@pytest.mark.covers("X30", "X44")
def test_a_breaker_in_the_code_refuses_and_the_attempt_is_refunded(app: Holdfast, cluster: Cluster) -> None:
    server, called = {"up": False}, []
    llm = app.breaker("llm")

    @app.handler("question", retry="patient", steps=["read"], concurrency=1)
    async def ask(n: int, ctx: Context) -> None:
        ctx.mark("read")
        async with llm:
            called.append(n)
            if not server["up"]:
                raise Down

    for n in range(15):
        app.publish("question", n)
    drain(app)
    assert len(called) == 10
    assert Counter((each.attempts, each.failures) for each in pending(app)) == {(1, 1): 10, (0, 0): 5}
    refused = [each for each in pending(app) if each.failures == 0]
    assert {each.reason for each in refused} == {Reason.DEPENDENCY_FAILURE}
    server["up"] = True
    cluster.advance(seconds=60)
    drain(app)
    cluster.advance(seconds=60)
    drain(app)
    assert pending(app) == []
    assert len(called) == 25


@pytest.mark.covers("X44", "X5")
def test_a_refusal_that_leaves_a_handler_is_a_dependency_failure_that_costs_nothing(
    app: Holdfast, cluster: Cluster
) -> None:
    llm = app.breaker("llm")

    @app.handler("question", concurrency=1)
    async def ask(n: int) -> None:
        async with llm:
            raise AssertionError("called")

    app.operations.breakers.trip("llm", why="maintenance")
    app.publish("question", 1)
    drain(app)
    (waits,) = pending(app)
    assert (waits.attempts, waits.failures, waits.refunds) == (0, 0, 1)
    assert waits.reason is Reason.DEPENDENCY_FAILURE


def test_a_closed_breaker_costs_a_worker_no_statement_per_message(app: Holdfast, cluster: Cluster) -> None:
    """Counted at the store: with the breaker as many statements as without, but for the first look."""
    statements: list[str] = []

    def counted(make: Any) -> Any:
        def run(plan: Any) -> Any:
            return make(noting(app.store.bound(plan)))

        return run

    def noting(plan: Any) -> Any:
        answer = None
        try:
            while True:
                statement = plan.send(answer)
                if "fast.breaker" in statement.sql or "fast_breaker" in statement.sql:
                    statements.append(statement.sql)
                answer = yield statement
        except StopIteration as end:
            return end.value

    @app.handler("question", breaker="llm")
    async def ask(n: int) -> None: ...

    for verb in ("run", "arun", "read"):
        setattr(app.store, verb, counted(getattr(app.store, verb)))
    app.publish_many(app.message("question", n) for n in range(300))
    drain(app)
    assert pending(app) == []
    assert len(statements) <= 4, "the first look stores the breaker, and then nobody asks or tells"


@pytest.mark.covers("W66", "W67")
def test_repeated_failures_of_one_type_stop_that_type_and_no_other(app: Holdfast, cluster: Cluster) -> None:
    app.breaker("order.placed", counts=Exception)
    broken, fine = [], []

    @app.handler("order.placed", breaker="order.placed", concurrency=1)
    async def place(n: int) -> None:
        broken.append(n)
        raise ValueError("a bug came with the last release")

    @app.handler("order.paid")
    async def pay(n: int) -> None:
        fine.append(n)

    for n in range(50):
        app.publish("order.placed", n)
        app.publish("order.paid", n)
    drain(app)
    assert (len(broken), len(fine)) == (10, 50)
    assert app.operations.breakers.show("order.placed").why == "10 of the last 10 calls failed: ValueError"


def test_a_handler_that_hangs_opens_its_breaker(cluster: Cluster, tmp_path: Path) -> None:
    """Its time limit cancels it: that is a timeout of the dependency, whatever the client library does."""
    app = Holdfast(f"sqlite:///{tmp_path / 'hang.db'}")
    app.breaker("llm", calls_min=3, cooldown=60)

    @app.handler("question", breaker="llm", timeout=0.2)
    async def ask(n: int) -> None:
        await asyncio.sleep(60)

    for n in range(3):
        app.publish("question", n)

    async def run() -> None:
        async with app.running():
            await until(lambda: app.operations.breakers.show("llm").state == "open")

    app.prepare()
    with app.breaker("llm"):
        pass
    asyncio.run(run())
    assert [(each.attempts, each.failures) for each in pending(app)] == [(1, 1)] * 3
    app.close()


async def until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_an_outage_with_two_workers(app: Holdfast, cluster: Cluster) -> None:
    """By the real clock: both stop, both go on, every message is handled, none is condemned."""
    apps, handled, server = [], Counter[int](), {"up": False, "calls": 0}
    for _ in range(2):
        each = Holdfast(cluster.url)
        each.breaker("llm", cooldown=1.0)

        @each.handler("question", breaker="llm", retry="brisk", concurrency=5)
        async def ask(n: int) -> None:
            server["calls"] += 1
            await asyncio.sleep(0.005)
            if not server["up"]:
                raise Down
            handled[n] += 1

        apps.append(each)
    first, second = apps
    first.prepare()
    first.publish_many([first.message("question", n) for n in range(300)])
    async with first.running(), second.running():
        await until(lambda: any(each.state == "open" for each in first.operations.breakers.list()))
        await asyncio.sleep(1.2)
        before = server["calls"]
        assert before < 100  # and not 300 times as many as there are workers
        await asyncio.sleep(1.5)
        assert server["calls"] - before <= 2 * 3  # trials
        server["up"] = True
        await until(lambda: len(handled) == 300, 30)
    assert set(handled.values()) == {1}
    assert list(first.operations.dead.list()) == []
    for each in apps:
        each.close()


# --- Rates ------------------------------------------------------------------------------------------------------------


def test_a_backlog_is_worked_off_at_the_rate(app: Holdfast, cluster: Cluster) -> None:
    started = []

    @app.handler("mail", rate="10/s")
    async def send(n: int) -> None:
        started.append(n)

    for n in range(60):
        app.publish("mail", n)
    drain(app)
    assert len(started) == 10
    drain(app)
    assert len(started) == 10
    assert {(each.attempts, each.failures) for each in pending(app)} == {(0, 0)}
    for second in range(1, 6):
        cluster.advance(seconds=1)
        drain(app)
        assert abs(len(started) - 10 * (second + 1)) <= 1
    cluster.advance(hours=1)
    drain(app)
    assert sorted(started) == list(range(60))


def test_handlers_of_one_destination_share_its_rate(app: Holdfast, cluster: Cluster) -> None:
    smtp = app.rate("smtp", "1/s", burst=8)
    sent: list[str] = []

    @app.handler("receipt", rate=smtp)
    async def send_receipt(n: int) -> None:
        sent.append("receipt")

    @app.handler("reminder", rate=smtp)
    def send_reminder(n: int) -> None:
        sent.append("reminder")

    for n in range(20):
        app.publish("receipt", n)
        app.publish("reminder", n)
    drain(app)
    assert len(sent) == 8
    assert len(pending(app)) == 32


def test_a_stream_keeps_its_order_under_a_rate(app: Holdfast, cluster: Cluster) -> None:
    seen: list[int] = []

    @app.handler("step", rate="5/s")
    async def follow(n: int) -> None:
        seen.append(n)

    for n in range(30):
        app.publish("step", n, stream="one")
    for _ in range(12):
        drain(app)
        cluster.advance(seconds=1)
    assert seen == list(range(30))
    assert list(app.operations.dead.list()) == []
