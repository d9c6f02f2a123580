"""Leases in a worker's hands: renewed while a handler runs, given up when that fails, taken away by an operator."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, RetryPolicy, StoreUnavailable
from holdfast.clock import MovableClock
from tests.worker.lab import PATIENCE, Lab, auntil, settled, state_of, until

SHORT = {"lease": 0.6, "heartbeat": 0.15}  # for what lapses
# For what must not lapse: a machine may stand still for a moment (CI's did, for half a second).
LASTING = {"lease": 2.0, "heartbeat": 0.15}
at_once = RetryPolicy(attempts_max=3, base=0.0, factor=1.0, cap=0.0)


@pytest.mark.covers("X11", "X13")
async def test_handlers_ten_times_as_long_as_their_lease_run_once(lab: Lab) -> None:
    """Another worker stands by for whatever lapses (K02). Time is moved by a third of a lease, when the heartbeat has
    renewed what is held and the other worker has looked for what has lapsed."""
    lease = 30.0
    clock, starts, go_on = MovableClock(), [], threading.Event()
    app, standby = (lab.app(clock=clock, lease=lease, heartbeat=0.05) for _ in range(2))
    for each in (app, standby):

        @each.handler("a", name="work")
        async def work(body: dict) -> None:
            starts.append("async")
            await asyncio.to_thread(go_on.wait, PATIENCE)

        @each.handler("a", name="work_too")
        def work_too(body: dict) -> None:
            starts.append("def")
            go_on.wait(PATIENCE)

    def renewed() -> bool:
        leases = lab.rows("lease")
        return len(leases) == 2 and all(
            row.until >= clock.instant + timedelta(seconds=lease) for row in leases
        )

    app.publish("a", {"n": 1})
    async with lab.working(app):
        await auntil(lambda: len(starts) == 2)
        async with lab.working(standby) as other:
            for _ in range(30):
                await auntil(renewed, lab.describe)
                await other._look_for_lapses()
                clock.advance(seconds=lease / 3)
            go_on.set()
            await settled(lab)
    assert sorted(starts) == ["async", "def"]
    assert [(row.attempts, row.failures) for row in lab.rows("history")] == [(1, 0)] * 2


def test_a_handler_that_blocks_the_loop_keeps_its_lease(lab: Lab) -> None:
    """The heartbeat has a thread of its own (K09). Two processes, so that another loop could take it over."""
    lab.publish({"n": 1, "seconds": 3 * LASTING["lease"]}, type="sleeper", queue="sleeper")
    lab.start(processes=2, settings=LASTING)
    lab.until_empty()
    assert lab.started() == {1: 1}
    assert [row.attempts for row in lab.rows("history")] == [1]


@pytest.mark.covers("W14")
async def test_an_async_handler_past_its_timeout_is_stopped(lab: Lab) -> None:
    app, attempts, cancelled = lab.app(), [], []

    @app.handler("a", timeout=0.2, retry=at_once)
    async def work(body: dict, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(ctx.attempt)
            raise

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert attempts == cancelled == [1, 2, 3]
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.last_reason, dead.failures) == (7, 4, 3)
    assert "longer than 0.2 s" in dead.errors[0]["text"]


async def test_what_a_handler_does_in_its_last_moment_still_counts(lab: Lab) -> None:
    """It is told to stop at its timeout, and marks a step on its way out."""
    app, seen = lab.app(), []

    @app.handler("a", timeout=0.2, retry=at_once, steps=["charge"])
    async def work(body: dict, ctx: Context) -> None:
        seen.append(ctx.did("charge"))
        if not ctx.did("charge"):
            try:
                await asyncio.sleep(600)
            finally:
                ctx.mark("charge")

    app.publish("a", {})
    async with lab.working(app):
        await settled(lab)
    assert seen == [False, True]


async def test_a_timeout_stops_only_its_own_handler(lab: Lab) -> None:
    app, ended = lab.app(), []

    @app.handler("slow", timeout=0.2, retry=RetryPolicy(attempts_max=1))
    async def slow(body: dict) -> None:
        await asyncio.sleep(600)

    @app.handler("quick")
    async def quick(body: dict) -> None:
        await asyncio.sleep(0.5)
        async with asyncio.timeout(5):
            await asyncio.sleep(0.01)
        ended.append(body["n"])

    app.publish_many([app.message("slow", {}), *(app.message("quick", {"n": n}) for n in range(10))])
    async with lab.working(app):
        await settled(lab)
    assert sorted(ended) == list(range(10))
    assert len(lab.rows("dead")) == 1


async def test_a_handler_that_ignores_its_end_holds_nobody_up(lab: Lab) -> None:
    """It swallows the cancellation: its lease is renewed no more, and another attempt begins when it has lapsed."""
    app, standby, attempts = lab.app(**SHORT), lab.app(**SHORT), []
    release = asyncio.Event()
    for each in (app, standby):

        @each.handler(
            "a", name="work", timeout=0.3, retry=RetryPolicy(attempts_max=5, base=0.0, factor=1.0, cap=0.0)
        )
        async def work(body: dict, ctx: Context) -> None:
            attempts.append(ctx.attempt)
            while ctx.attempt == 1 and not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    pass

    app.publish("a", {})
    async with lab.working(app), lab.working(standby):
        await settled(lab)
        release.set()
    assert attempts == [1, 2]
    assert [(row.attempts, row.outcome) for row in lab.rows("history")] == [(2, "done")]


def test_a_def_handler_past_its_timeout_has_its_process_replaced(lab: Lab) -> None:
    lab.publish({"n": 1, "reach": "reached", "until": "never"}, type="thread", queue="in_thread")
    worker = lab.start(settings={"lease": 5.0, "heartbeat": 1.0}, starts_max=2, options={"timeout": 0.5})
    lab.reached("reached")
    lab.publish(*({"n": n} for n in range(10, 20)))
    lab.until_empty()
    assert [attempt for n, attempt, _ in lab.starts() if n == 1] == [1, 2]
    assert len({process for n, _, process in lab.starts() if n == 1}) == 2
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.last_reason, dead.attempts, dead.failures, dead.vanished) == (7, 4, 2, 2, 0)
    assert {row.attempts for row in lab.rows("history")} == {1}
    assert "cannot be stopped" in worker.said
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


async def test_a_def_handler_past_its_timeout_inside_an_application(lab: Lab) -> None:
    """Nobody can replace the process: it is settled all the same, and its thread counts as taken until it returns."""
    app, attempts, go_on = lab.app(), [], threading.Event()

    @app.handler("a", timeout=0.2, concurrency=2, retry=at_once)
    def work(body: dict, ctx: Context) -> None:
        attempts.append((body["n"], ctx.attempt))
        if body["n"] == 1 and ctx.attempt == 1:
            go_on.wait(60)

    app.publish("a", {"n": 1})
    async with lab.working(app) as worker:
        await auntil(lambda: (1, 2) in attempts, lab.describe)
        app.publish_many(app.message("a", {"n": n}) for n in range(2, 10))
        await settled(lab)
        assert worker.pacing.paces["work"].running == 1
        go_on.set()
        await auntil(lambda: worker.pacing.paces["work"].running == 0)
    assert sorted(row.attempts for row in lab.rows("history")) == [1] * 8 + [2]
    assert [row.failures for row in lab.rows("history") if row.attempts == 2] == [1]


@pytest.mark.alone
async def test_a_worker_that_cannot_renew_stops_its_handlers_in_time(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeat does not reach the database. By its own clock the worker stops before anybody else begins (F4)."""
    app, standby, events = lab.app(**SHORT, grace=0.5), lab.app(**SHORT), []

    def work(who: str) -> Any:
        async def work(body: dict, ctx: Context) -> None:
            events.append((who, "begins", time.monotonic()))
            try:
                await asyncio.sleep(600 if who == "first" else 0)
            except asyncio.CancelledError:
                events.append((who, "stops", time.monotonic()))
                raise

        return work

    app.handler("a", name="work")(work("first"))
    standby.handler("a", name="work")(work("second"))
    app.publish("a", {})
    async with lab.working(app):
        await auntil(lambda: events)
        cut_off(app)
        async with lab.working(standby):
            await auntil(lambda: any(who == "second" for who, *_ in events), lab.describe)
    stopped = next(at for who, what, at in events if (who, what) == ("first", "stops"))
    begun = next(at for who, what, at in events if (who, what) == ("second", "begins"))
    assert stopped <= begun + 0.3, "two handlers of one message ran side by side"
    assert "could not be renewed in time" in caplog.text


def cut_off(app: Any) -> None:
    """The database answers this application no more."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the cable is cut")

    async def arefuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the cable is cut")

    app.store.run, app.store.arun = refuse, arefuse


async def test_a_heartbeat_that_fails_once_is_made_up_for(lab: Lab) -> None:
    """The next one at its time would come too late."""
    app, starts = lab.app(lease=2.0, heartbeat=1.0), []

    @app.handler("a")
    async def work(body: dict) -> None:
        starts.append(body)
        await asyncio.sleep(5.0)

    app.publish("a", {})
    async with lab.working(app):
        await auntil(lambda: starts)
        run, failed = app.store.run, []

        def fail_once(*arguments: Any, **options: Any) -> Any:
            if not failed:
                failed.append(1)
                raise StoreUnavailable("for a moment")
            return run(*arguments, **options)

        app.store.run = fail_once  # type: ignore[method-assign]
        await settled(lab)
        app.store.run = run  # type: ignore[method-assign]
    assert failed
    assert [(row.attempts, row.outcome) for row in lab.rows("history")] == [(1, "done")]


# --- Cancellation -----------------------------------------------------------------------------------------------------


async def test_an_operator_cancels_a_running_message(lab: Lab) -> None:
    app, seen = lab.app(**LASTING), []

    @app.handler("a")
    async def work(body: dict) -> None:
        seen.append("begun")
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.append("stopped")
            raise

    sent = app.publish("a", {})
    async with lab.working(app):
        await auntil(lambda: seen)
        await asyncio.to_thread(lab.operations.messages.cancel, sent.id)
        await settled(lab)
    assert seen == ["begun", "stopped"]
    assert [(row.outcome, row.attempts) for row in lab.rows("history")] == [("cancelled", 1)]


async def test_the_first_settlement_wins_over_a_cancellation(lab: Lab) -> None:
    """A def handler cannot be stopped: it ends well before the cancellation can mean anything."""
    app, begun, go_on = lab.app(**LASTING), threading.Event(), threading.Event()

    @app.handler("a")
    def work(body: dict) -> None:
        begun.set()
        go_on.wait(60)

    sent = app.publish("a", {})
    async with lab.working(app):
        await auntil(begun.is_set)
        await asyncio.to_thread(lab.operations.messages.cancel, sent.id)
        await asyncio.sleep(0.5)  # more than one heartbeat
        go_on.set()
        await settled(lab)
    assert [row.outcome for row in lab.rows("history")] == ["done"]


async def test_a_message_cancelled_before_it_begins_never_begins(lab: Lab) -> None:
    app, seen = lab.app(**LASTING), []
    go_on = asyncio.Event()

    @app.handler("a", concurrency=1)
    async def work(body: dict) -> None:
        seen.append(body["n"])
        await go_on.wait()

    app.publish("a", {"n": 1})
    sent = app.publish("a", {"n": 2})
    async with lab.working(app) as worker:

        def holds_two() -> bool:
            # As many as the worker may, so that the second waits in its hands. It must not measure its pace anew.
            worker.pacing._measured_at = math.inf
            worker.pacing.paces["work"].rate = 100.0
            return len(lab.rows("lease")) == 2

        await auntil(holds_two, lab.describe)
        await asyncio.to_thread(lab.operations.messages.cancel, sent.id)
        await auntil(
            lambda: any(lane.stop is not None for lane in list(worker.pacing.lanes.values())), lab.describe
        )
        go_on.set()
        await settled(lab)
    assert seen == [1]
    assert sorted(row.outcome for row in lab.rows("history")) == ["cancelled", "done"]


async def test_one_of_a_batch_cannot_be_cancelled_alone(lab: Lab) -> None:
    app, seen = lab.app(**LASTING), []
    go_on = asyncio.Event()

    @app.handler("a", batch=5)
    async def many(bodies: list[dict]) -> None:
        seen.extend(bodies)
        await go_on.wait()

    sent = app.publish("a", {"n": 1})
    app.publish("a", {"n": 2})
    async with lab.working(app):
        await auntil(lambda: seen)
        if len(seen) == 2:
            await asyncio.to_thread(lab.operations.messages.cancel, sent.id)
            await asyncio.sleep(0.5)  # more than one heartbeat
        go_on.set()
        await settled(lab)
    assert {row.outcome for row in lab.rows("history")} == {"done"}


# --- Lapses -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X11", "D12", "X13")
async def test_leases_that_a_dead_worker_left_are_taken_over(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker written by hand claims and is never heard of again."""
    app, seen = lab.app(**SHORT), []
    caplog.set_level(logging.WARNING, "holdfast")

    @app.handler("a")
    async def work(body: dict, ctx: Context) -> None:
        seen.append((body["n"], ctx.attempt))

    app.publish_many(app.message("a", {"n": n}) for n in range(3))
    by_hand = lab.app()
    batch = by_hand.process_work_batch(want={"work": 10}, lease=0.3)
    assert len(batch.work) == 3
    async with lab.working(app):
        await settled(lab)
    assert sorted(seen) == [(0, 2), (1, 2), (2, 2)]
    assert "3 leases had expired" in caplog.text


def test_a_process_that_is_stopped_and_goes_on_finds_its_lease_gone(lab: Lab) -> None:
    """An async handler: nothing of what it did counts, and its process works on."""
    settings = {"lease": 1.0, "heartbeat": 0.3}
    lab.publish({"n": 1, "stop": True, "reach": "reached", "until": "go"})
    zombie = lab.start(settings=settings)
    until(lambda: any(state_of(pid) == "T" for pid in zombie.children()), lab.said)
    (child,) = zombie.children()
    second = lab.start(settings=settings)
    until(lambda: len(lab.starts()) == 2, lab.said)
    lab.signal("go")
    lab.until_empty()
    os.kill(child, signal.SIGCONT)
    until(lambda: "another worker" in zombie.said or "renewed in time" in zombie.said, lab.said)
    assert [(row.attempts, row.outcome) for row in lab.rows("history")] == [(2, "done")]
    second.send(signal.SIGTERM)
    second.wait()
    lab.publish({"n": 2})
    lab.until_empty()
    assert lab.started()[2] == 1
