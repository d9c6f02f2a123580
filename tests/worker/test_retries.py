"""Failures through the worker: how often, how long between, and what is left in the end. The clock is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, Flag, Holdfast, Reason, RetryPolicy
from holdfast.clock import MovableClock
from holdfast.rules.retry import PROFILES
from holdfast.testing import Drained
from tests.store.state import Row
from tests.worker.lab import Lab, auntil


class Bench:
    """An application with one handler that fails as often as it is told to, under a clock that stands."""

    def __init__(self, lab: Lab, retry: str | RetryPolicy, **options: Any) -> None:
        self.lab = lab
        self.app, self.clock = lab.still()
        self.starts: list[tuple[int, timedelta]] = []
        self.fails: Callable[[Context], BaseException | None] = lambda ctx: RuntimeError("no")
        self.begun = self.clock.instant

        @self.app.handler("work", name="work", retry=retry, **options)
        async def work(body: dict, ctx: Context) -> None:
            self.starts.append((ctx.attempt, self.clock.instant - self.begun))
            error = self.fails(ctx)
            if error is not None:
                raise error

    async def drain(self) -> None:
        await Drained(self.app, self.clock).adrain(raises=False)

    async def run_to(self, **parts: float) -> None:
        """Let time pass in steps, so that a retry comes when it is due and not later."""
        end = self.begun + timedelta(**parts)
        while True:
            await self.drain()
            due = [
                row.claimable_at for row in self.lab.rows("message") if row.claimable_at > self.clock.instant
            ]
            following = min([at for at in due if at <= end], default=None)
            if following is None:
                break
            self.clock.instant = following
        self.clock.instant = end
        await self.drain()

    @property
    def message(self) -> Row:
        (row,) = self.lab.rows("message")
        return row


def seconds(*values: float) -> list[timedelta]:
    return [timedelta(seconds=value) for value in values]


@pytest.mark.covers("W28", "C38", "W24", "W32", "W33", "W35", "W21", "W22", "W23", "W27", "C5", "X14")
async def test_the_timeline_of_a_message_that_fails_twice(lab: Lab) -> None:
    bench = Bench(lab, "patient")
    bench.fails = lambda ctx: RuntimeError("busy") if ctx.attempt < 3 else None
    bench.app.publish("work", {})
    await bench.drain()
    first = bench.message
    assert (first.attempts, first.failures, first.status) == (1, 1, Flag.STORED | Flag.FAILED)
    assert first.claimable_at == bench.begun + timedelta(seconds=60)
    bench.clock.advance(seconds=59.999)
    await bench.drain()
    assert len(bench.starts) == 1
    bench.clock.advance(seconds=0.001)
    await bench.drain()
    assert bench.message.claimable_at == bench.begun + timedelta(seconds=180)
    await bench.run_to(minutes=3)
    assert [at for _, at in bench.starts] == seconds(0, 60, 180)
    assert lab.is_empty()
    (told,) = lab.rows("history")
    assert (told.outcome, told.attempts, told.failures) == ("done", 3, 2)
    assert told.status & Flag.PUBLISHED


@pytest.mark.covers("X8", "X7", "C20", "C39", "V22", "X15", "W60", "C3", "C4", "C6", "D55", "W79")
@pytest.mark.parametrize("profile", sorted(PROFILES))
async def test_each_profile_starts_so_often_and_waits_so_long(lab: Lab, profile: str) -> None:
    expected = {
        "patient": [0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600],
        "brisk": [0, 2, 4, 8, 16],
        "api": [0, 2, 4, 8],
        "steady": [0, 60, 60],
        "immediate": [0, 0, 0, 0, 0],
    }[profile]
    bench = Bench(lab, profile)
    bench.app.publish("work", {})
    await bench.run_to(days=2)
    assert [attempt for attempt, _ in bench.starts] == list(range(1, len(expected) + 1))
    waits = [0.0] + [
        (later - earlier).total_seconds()
        for (_, earlier), (_, later) in zip(bench.starts, bench.starts[1:], strict=False)
    ]
    spread = 0.2 if profile == "api" else 0.0
    for waited, nominal in zip(waits, expected, strict=True):
        assert nominal * (1 - spread) - 1e-3 <= waited <= nominal * (1 + spread) + 1e-3
    if profile == "api":
        assert waits[1:] != expected[1:], "no jitter"
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.last_reason, dead.attempts, dead.failures) == (
        7,
        2,
        len(expected),
        len(expected),
    )
    bench.clock.advance(days=30)
    await bench.drain()
    assert len(bench.starts) == len(expected)


@pytest.mark.covers("X7", "D55", "C19", "D17")
@pytest.mark.parametrize("fails_until", [2, 3, 4])
async def test_the_last_start_allowed_may_succeed(lab: Lab, fails_until: int) -> None:
    """N is 4: a message that succeeds at its N-1st, its Nth, and one that would at its N+1st."""
    bench = Bench(lab, RetryPolicy(attempts_max=4, base=1.0, cap=10.0))
    bench.fails = lambda ctx: RuntimeError("no") if ctx.attempt <= fails_until else None
    bench.app.publish("work", {})
    await bench.run_to(minutes=5)
    assert len(bench.starts) == min(4, fails_until + 1)
    assert [row.outcome for row in lab.rows("history")] == (["done"] if fails_until < 4 else [])
    assert len(lab.rows("dead")) == (1 if fails_until == 4 else 0)


@pytest.mark.covers("V21", "X48")
@pytest.mark.parametrize(("asked", "waited"), [("17", 17), ("86400", 3600), ("0", 2)])
async def test_retry_after_comes_first(lab: Lab, asked: str, waited: float) -> None:
    class TooMany(Exception):
        status_code = 429
        headers = {"Retry-After": asked}  # noqa: RUF012

    bench = Bench(lab, RetryPolicy(attempts_max=4, base=1.0, cap=300.0))
    bench.fails = lambda ctx: TooMany() if ctx.attempt == 1 else None
    bench.app.publish("work", {})
    await bench.drain()
    row = bench.message
    assert row.claimable_at == bench.begun + timedelta(seconds=waited)
    assert row.reason == Reason.DEPENDENCY_FAILURE
    await bench.run_to(hours=2)
    assert [at for _, at in bench.starts] == seconds(0, waited)


@pytest.mark.covers("W19", "W18", "X46")
async def test_a_reason_may_have_a_policy_of_its_own(lab: Lab) -> None:
    patient = RetryPolicy(attempts_max=3, base=100.0, factor=1.0, cap=100.0)
    bench = Bench(
        lab, RetryPolicy(attempts_max=2, base=1.0, per_reason={Reason.TRANSPORT_UNAVAILABLE: patient})
    )
    bench.fails = lambda ctx: ConnectionError("down")
    bench.app.publish("work", {})
    await bench.run_to(minutes=10)
    assert [at for _, at in bench.starts] == seconds(0, 100, 200)
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.last_reason) == (7, 1)


@pytest.mark.covers("V17", "V25", "X46")
async def test_a_permanent_error_is_not_retried(lab: Lab) -> None:
    class NotFound(Exception):
        status_code = 404

    bench = Bench(lab, "patient")
    bench.fails = lambda ctx: NotFound("no such page")
    bench.app.publish("work", {})
    await bench.run_to(days=1)
    assert len(bench.starts) == 1
    assert [(row.reason, row.last_reason, row.failures) for row in lab.rows("dead")] == [(3, 3, 1)]


@pytest.mark.covers("D18", "D17", "D57", "D4", "D6", "X7")
async def test_poison_is_judged_before_any_code_of_the_user_runs(lab: Lab) -> None:
    bench = Bench(lab, RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0))
    bench.app.publish("work", {})
    bench.app.prepare()
    lab.query("update {message} set attempts = 3, vanished = 1")
    await bench.drain()
    assert bench.starts == []
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.last_reason, dead.attempts) == (7, 8, 4)


@pytest.mark.covers("D17", "D55")
async def test_the_nth_hand_over_still_runs(lab: Lab) -> None:
    bench = Bench(lab, RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0))
    bench.fails = lambda ctx: None
    bench.app.publish("work", {})
    bench.app.prepare()
    lab.query("update {message} set attempts = 2, vanished = 1")
    await bench.drain()
    assert [attempt for attempt, _ in bench.starts] == [3]
    assert [row.attempts for row in lab.rows("history")] == [3]


async def test_a_vanished_message_with_one_start_allowed_is_of_unknown_outcome(lab: Lab) -> None:
    bench = Bench(lab, RetryPolicy(attempts_max=1))
    bench.app.publish("work", {})
    bench.app.prepare()
    lab.query("update {message} set attempts = 1, vanished = 1")
    await bench.drain()
    assert bench.starts == []
    assert [(row.reason, row.last_reason) for row in lab.rows("dead")] == [(8, 8)]


async def test_a_deadline_that_has_passed_is_noticed_before_the_start(lab: Lab) -> None:
    bench = Bench(lab, "patient")
    bench.fails = lambda ctx: None
    deadline = bench.clock.instant + timedelta(minutes=1)
    bench.app.publish("work", {"late": False}, deadline=deadline)
    bench.app.publish("work", {"late": True}, delay=61, deadline=deadline)
    await bench.run_to(minutes=2)
    assert len(bench.starts) == 1
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.attempts, dead.failures) == (4, 0, 0)


@pytest.mark.covers("C7", "C25", "C29", "V15", "D5", "D54", "C26")
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_one_that_throws_does_not_abort_the_others(lab: Lab, kind: str) -> None:
    app, clock = lab.still()
    seen: list[int] = []

    def handle(body: dict) -> None:
        if body["n"] % 7 == 3:
            raise RuntimeError(f"{body['n']} is a bad number")
        seen.append(body["n"])

    if kind == "async":

        @app.handler("work", name="work")
        async def work(body: dict) -> None:
            handle(body)

    else:

        @app.handler("work", name="work")
        def work_too(body: dict) -> None:
            handle(body)

    app.publish_many(app.message("work", {"n": n}) for n in range(100))
    await Drained(app, clock).adrain(raises=False)
    assert sorted(seen) == [n for n in range(100) if n % 7 != 3]
    failed = lab.rows("message")
    assert len(failed) == 14
    assert {(row.failures, row.attempts) for row in failed} == {(1, 1)}
    assert len(lab.rows("history")) == 86


@pytest.mark.covers("C29")
async def test_results_are_saved_although_the_worker_was_told_to_stop(lab: Lab) -> None:
    app, begun, go_on = lab.app(), [], asyncio.Event()

    @app.handler("work")
    async def work(body: dict) -> None:
        begun.append(body["n"])
        await go_on.wait()
        if body["n"] == 2:
            raise RuntimeError("no")

    app.publish_many(app.message("work", {"n": n}) for n in range(3))
    async with lab.working(app) as worker:
        await auntil(lambda: len(begun) == 3)
        worker.stop()
        go_on.set()
    assert len(lab.rows("history")) == 2
    assert [row.failures for row in lab.rows("message")] == [1]


async def test_errors_are_kept_with_their_time_and_reason(lab: Lab) -> None:
    bench = Bench(lab, RetryPolicy(attempts_max=20, base=1.0, factor=1.0, cap=1.0))
    bench.fails = lambda ctx: RuntimeError(f"{ctx.attempt}: " + "x" * 5000)
    bench.app.publish("work", {})
    await bench.run_to(seconds=11)
    row = bench.message
    assert [error["text"][:17] for error in row.errors] == [f"RuntimeError: {n}: "[:17] for n in range(3, 13)]
    assert {len(error["text"]) for error in row.errors} == {2000}
    assert [error["at"] for error in row.errors] == [bench.begun + timedelta(seconds=n) for n in range(2, 12)]


async def test_the_testing_helper_is_a_world_of_its_own(lab: Lab) -> None:
    """`app.testing()` has a database and a clock of its own, and leaves the application as it was."""
    app, seen = lab.app(), []

    @app.handler("work", retry="steady")
    async def work(body: dict, ctx: Context) -> None:
        seen.append(ctx.attempt)
        if ctx.attempt < 3:
            raise RuntimeError("no")

    with app.testing() as t:
        app.publish("work", {})
        await t.adrain(raises=False)
        t.advance(seconds=59)
        await t.adrain(raises=False)
        assert seen == [1]
        t.advance(seconds=1)
        await t.adrain(raises=False)
        t.advance(minutes=1)
        await t.adrain(raises=False)
    assert seen == [1, 2, 3]
    assert lab.is_empty()
    assert lab.rows("history") == []


def test_draining_without_a_loop(sqlite_lab: Lab) -> None:
    app, seen = sqlite_lab.app(), []

    @app.handler("work")
    def work(body: dict) -> None:
        seen.append(body)

    with app.testing() as t:
        app.publish("work", {"n": 1})
        app.publish("work", {"n": 2}, delay=60)
        app.publish("work", {"n": 3}, delay=30, stream="s")
        t.drain(raises=False)
        assert seen == [{"n": 1}]
        t.advance(minutes=1)
        t.drain(raises=False)
    assert sorted(body["n"] for body in seen) == [1, 2, 3]


def test_a_movable_clock_stands(sqlite_lab: Lab) -> None:
    clock = MovableClock()
    app = Holdfast(sqlite_lab.url, clock=clock)
    before = clock.now()
    app.publish("nobody", {})
    assert clock.now() == before
    app.close()
