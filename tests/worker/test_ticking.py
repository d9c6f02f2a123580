"""Steps that a worker runs by the clock: the seam, with steps made for the test."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast import Context, Holdfast, cron, every
from holdfast.clock import SystemClock, wall_clock
from holdfast.model.work import Ticked
from holdfast.rules import tick as rules
from holdfast.schedules.defining import define
from holdfast.schedules.setting import put
from holdfast.worker.loop import Worker
from holdfast.worker.ticking import Step, Ticking
from tests.schedules.downtime import connected
from tests.worker.lab import auntil


@dataclass
class Later(SystemClock):
    """The machine's clock, with a database's time that is later."""

    by: timedelta = timedelta(0)

    def now(self) -> datetime:
        return wall_clock() + self.by


class Task:
    """A step with some moments at which it has something to do."""

    def __init__(self, *moments: datetime) -> None:
        self.moments = list(moments)
        self.done: list[datetime] = []
        self.calls = 0
        self.over = threading.Event()

    def __call__(self) -> Ticked:
        now = wall_clock()
        self.calls += 1
        due = [each for each in self.moments if each <= now]
        if due:
            self.moments.remove(due[0])
            self.done.append(now)
        if not self.moments:
            self.over.set()
        return Ticked(len(due[:1]), now, min(self.moments, default=None))


def worker(app: Holdfast, steps: dict[str, Step], **options: bool) -> Worker:
    app.prepare()
    made = app.worker(**options)
    made.ticking = Ticking(steps, app.clock, made.ticking.brought)
    return made


async def test_steps_run_in_the_turn_one_part_after_the_other(url: str) -> None:
    app, begun = Holdfast(url), wall_clock()
    early, late = Task(*[begun - timedelta(hours=1)] * 5), Task(begun + timedelta(seconds=0.2))
    loop = worker(app, {"early": early, "late": late})
    running = asyncio.create_task(loop.run())
    try:
        assert await asyncio.to_thread(late.over.wait, 20)
        assert await asyncio.to_thread(early.over.wait, 20)
    finally:
        loop.stop()
        await running
    assert len(early.done) == 5
    assert late.done[0] >= begun + timedelta(seconds=0.2)
    await app.store.aclose()


async def test_a_worker_rests_no_longer_than_until_the_moment_of_a_step(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, task = Holdfast(url), Task(wall_clock() + timedelta(hours=1))
    app.handler("due", name="due")(lambda body: None)
    loop, rests, rested = worker(app, {"task": task}), list[float](), asyncio.Event()
    wait = app.store.wait

    async def noted(seconds: float, woken: asyncio.Event) -> bool:
        if not loop.pacing.stopping:
            rests.append(seconds)
            if seconds >= 0.0421:
                rested.set()
        return await wait(seconds, woken)

    monkeypatch.setattr(app.store, "wait", noted)
    monkeypatch.setattr(Ticking, "due_in", property(lambda ticking: 0.0421))
    loop._rhythm.pause = loop._rhythm.poll_max = 5.0  # without the step it would rest longer
    running = asyncio.create_task(loop.run())
    try:
        async with asyncio.timeout(20):
            await rested.wait()
        task.moments = [wall_clock()]  # not earlier: the first turn of a slow machine would find it due
        assert await asyncio.to_thread(task.over.wait, 20)
        await auntil(lambda: 0.0421 in rests)
    finally:
        loop.stop()
        await running
    assert max(rests) == 0.0421
    await app.store.aclose()


async def test_one_until_idle_ends_when_no_step_has_more_to_do(url: str) -> None:
    app, past = Holdfast(url), wall_clock() - timedelta(hours=1)
    step = Task(*[past] * 7)
    await worker(app, {"step": step}, until_idle=True).run()
    assert len(step.done) == 7
    await app.store.aclose()


@pytest.mark.covers("B14", "B15")
@pytest.mark.one_postgres
async def test_a_step_that_fails_stops_neither_the_others_nor_the_work(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, handled = Holdfast(url), []

    @app.handler("thing")
    async def handle(body: dict[str, int]) -> None:
        handled.append(body)

    def broken() -> Ticked:
        raise ZeroDivisionError("no")

    step = Task(*[wall_clock() - timedelta(hours=1)] * 3)
    loop = worker(app, {"broken": broken, "step": step}, until_idle=True)
    app.publish("thing", {"n": 1})
    with caplog.at_level(logging.ERROR):
        await loop.run()
    assert handled == [{"n": 1}]
    assert len(step.done) == 3
    told = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "tick.failed"]
    assert told == ["broken failed and is tried again in 1 s: ZeroDivisionError: no"]
    await app.store.aclose()


@pytest.mark.one_postgres
async def test_messages_of_other_queues_do_not_wait_for_a_step_that_takes_long(url: str) -> None:
    """While a handler runs, exchanges go on beside the steps."""
    app, held, over = Holdfast(url), threading.Event(), asyncio.Event()
    steps, begun, handled = list[bool](), asyncio.Event(), asyncio.Event()

    def slow() -> Ticked:
        if begun.is_set() and not steps:
            steps.append(held.wait(20))
        return Ticked(0, wall_clock(), wall_clock())

    @app.handler("long")
    async def long(body: object) -> None:
        begun.set()
        await over.wait()

    @app.handler("other")
    async def other(body: object) -> None:
        handled.set()
        held.set()

    loop = worker(app, {"slow": slow})
    running = asyncio.create_task(loop.run())
    try:
        async with asyncio.timeout(60):
            await asyncio.to_thread(app.publish, "long", {})
            await begun.wait()
            await auntil(lambda: not loop.ticking.is_quiet)
            await asyncio.to_thread(app.publish, "other", {})
            await handled.wait()
    finally:
        over.set()
        held.set()
        loop.stop()
        await running
    assert steps == [True]
    await app.store.aclose()


async def test_what_steps_say_of_queues_holds_for_the_exchanges_after_them() -> None:
    """An exchange that is in flight when they end would set the watermark behind what they brought."""
    brought, ended = list[str](), asyncio.Event()

    def step() -> Ticked:
        now = wall_clock()
        return Ticked(1, now, now + timedelta(seconds=5), ("q",))

    ticking = Ticking({"step": step}, SystemClock(), brought.extend)
    await ticking.tick(ended.set)
    assert not ticking.is_quiet
    await ended.wait()
    assert brought == []
    assert ticking.is_due
    await ticking.tick(ended.set)
    assert brought == ["q"]
    assert not ticking.is_due
    ticking.close()


async def test_what_is_changed_while_a_step_runs_is_looked_for_again() -> None:
    """For example a schedule that falls due earlier: the step that runs has looked before."""
    held, ended, calls = threading.Event(), asyncio.Event(), list[bool]()

    def step() -> Ticked:
        calls.append(held.wait(20))
        now = wall_clock()
        return Ticked(0, now, now + timedelta(hours=1))

    ticking = Ticking({"step": step}, SystemClock(), lambda queues: None)
    await ticking.tick(ended.set)
    ticking.wake()
    held.set()
    await ended.wait()
    await ticking.tick()
    assert calls == [True, True]
    assert not ticking.is_due
    ticking.close()


async def test_a_worker_without_work_waits_for_steps_that_run_beside_its_exchanges() -> None:
    held, calls = threading.Event(), list[int]()

    def step() -> Ticked:
        calls.append(held.wait(20))
        now = wall_clock()
        return Ticked(0, now, now + timedelta(seconds=5))

    ticking = Ticking({"step": step}, SystemClock(), lambda queues: None)
    await ticking.tick(lambda: None)
    waiting = asyncio.create_task(ticking.tick())
    await asyncio.sleep(0)
    assert not waiting.done()
    held.set()
    await waiting
    assert calls == [True]
    assert ticking.is_quiet
    ticking.close()


@pytest.mark.one_postgres
def test_a_worker_written_by_hand_runs_the_steps_too(url: str) -> None:
    app = Holdfast(url)
    step = Task(wall_clock() - timedelta(hours=1))
    app._by_hand.steps = lambda: {"step": step}
    app.process_work_batch(want={"thing": 1})
    assert len(step.done) == 1
    app.close()


def lease_until(url: str) -> Any:
    with connected(url) as db:
        table = "holdfast_lease" if url.startswith("sqlite") else "holdfast.lease"
        ((found,),) = db.execute(f"select max(until) from {table}").fetchall()
    return found


@pytest.mark.one_postgres
async def test_rules_that_take_long_hold_up_neither_handlers_nor_heartbeats(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a tick decides, a handler goes on, and its lease is renewed."""
    app = Holdfast(url, lease=4, heartbeat=0.2)
    deciding, renewed, fired = threading.Event(), threading.Event(), asyncio.Event()
    decide, went_on = rules.decide, list[bool]()

    def slow(*args: Any) -> Any:
        deciding.set()
        went_on.append(renewed.wait(20))
        return decide(*args)

    @app.handler("beat")
    async def beat(body: object) -> None:
        fired.set()

    @app.handler("work")
    async def work(body: object) -> None:
        app.set_schedule("beat", every(seconds=1), "beat")
        assert await asyncio.to_thread(deciding.wait, 20)
        before = lease_until(url)
        await auntil(lambda: lease_until(url) > before)
        renewed.set()

    monkeypatch.setattr(rules, "decide", slow)
    app.prepare()
    app.publish("work", {})
    async with app.running(), asyncio.timeout(60):
        await fired.wait()
    assert went_on
    assert all(went_on)
    await app.store.aclose()


@pytest.mark.faults("downtime")
@pytest.mark.one_postgres
async def test_no_lease_is_lost_while_100_000_of_dear_rules_are_caught_up(url: str) -> None:
    """Each schedule has a rule of its own, in many zones. One handler holds its lease, of 2 s, from begin to end."""
    clock = Later()
    app = Holdfast(url, lease=2, heartbeat=0.5, claim=1000, clock=clock)
    starts, fired, over = list[int](), Counter[str](), asyncio.Event()
    zones = ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago"]

    @app.handler("due", name="due")
    async def due(body: object, ctx: Context) -> None:
        assert ctx.occurrence is not None
        fired[ctx.occurrence.name] += 1
        if sum(fired.values()) == 100_000:
            over.set()

    @app.handler("work", name="work", timeout=3600)
    async def work(body: object, ctx: Context) -> None:
        starts.append(ctx.attempt)
        clock.by = timedelta(days=14)
        await over.wait()

    def many() -> Any:
        for n in range(50_000):
            # Not in the hours around now: a third one of what falls due while the test runs would be one too many.
            zone = zones[n // 1200 % 5]
            hour = (datetime.now(ZoneInfo(zone)).hour + 3 + n // 60 % 20) % 24
            rule = cron(f"{n // 42_000} {n % 60} {hour} * * {n // 6000 % 7}", zone=zone)
            yield from put(define(app.settings, f"n/{n:05}", rule, "due", None, cap=None), None)

    app.prepare()
    app.store.run(many())
    app.publish("work", {})
    async with app.running(), asyncio.timeout(1200):
        await over.wait()
    assert starts == [1]
    assert set(fired.values()) == {2}
    await app.store.aclose()
