"""After an outage the backlog begins at a bounded, rising rate, for all workers together, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Holdfast
from holdfast.clock import MovableClock
from tests.worker.lab import Lab


class Crowd:
    """Applications on one database with one clock; `second()` lets a second pass and all of them drain."""

    def __init__(
        self, lab: Lab, count: int = 2, policy: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.clock, self.server, self.began = MovableClock(), {"up": True}, []
        self.apps = [lab.app(clock=self.clock) for _ in range(count)]
        for app in self.apps:
            if policy is not None:
                app.breaker("llm", **policy)
            self.declare(app, options)
            app.prepare()

    def declare(self, app: Holdfast, options: dict[str, Any]) -> None:
        @app.handler("question", name="ask", **options)
        async def ask(n: int) -> None:
            self.began.append(n)
            if not self.server["up"]:
                raise ConnectionError

    def publish(self, count: int) -> None:
        app = self.apps[0]
        app.publish_many(app.message("question", n) for n in range(count))

    def drain(self) -> int:
        before = len(self.began)
        for app in self.apps:
            asyncio.run(self.drained(app))
        return len(self.began) - before

    async def drained(self, app: Holdfast) -> None:
        await app.worker(until_idle=True).run()
        await app.store.aclose()

    def second(self) -> int:
        self.clock.advance(seconds=1)
        return self.drain()


def test_when_a_breaker_has_closed_the_backlog_begins_slowly_and_then_faster(lab: Lab) -> None:
    crowd = Crowd(lab, breaker="llm", retry="patient", concurrency=5)
    crowd.server["up"] = False
    crowd.publish(600)
    crowd.drain()
    assert crowd.apps[0].operations.breakers.show("llm").state == "open"
    crowd.server["up"] = True
    crowd.clock.advance(seconds=61)
    counts = [crowd.drain(), *(crowd.second() for _ in range(14))]
    assert crowd.apps[0].operations.breakers.show("llm").state == "closed"
    assert counts[0] <= 3 + 10, "three trials, then a second's worth of ten a second"
    for passed, count in enumerate(counts[1:], 1):
        rate = 10 * 2 ** (passed / 3)
        assert count <= 1.3 * rate + 4, f"{counts}"
    assert sum(counts[1:4]) < 60 < sum(counts[9:12]), f"it rises: {counts}"
    for _ in range(30):
        crowd.second()
    assert lab.is_empty()
    assert lab.rows("dead") == []


def test_after_half_a_minute_nothing_is_bounded(lab: Lab) -> None:
    crowd = Crowd(lab, breaker="llm", concurrency=5)
    crowd.server["up"] = False
    crowd.publish(20)
    crowd.drain()
    crowd.server["up"] = True
    crowd.clock.advance(minutes=3)
    crowd.drain()
    crowd.clock.advance(seconds=31)
    crowd.drain()
    crowd.publish(500)
    assert crowd.drain() == 500


def test_without_catch_up_everything_begins_at_once(lab: Lab) -> None:
    crowd = Crowd(lab, policy={"catch_up": None}, breaker="llm", concurrency=5)
    crowd.server["up"] = False
    crowd.publish(200)
    crowd.drain()
    crowd.server["up"] = True
    crowd.clock.advance(minutes=3)
    assert crowd.drain() > 190


def test_a_handler_with_a_catch_up_begins_slowly_after_nobody_was_there(lab: Lab) -> None:
    """Everybody was away: the first to come begins slowly. One that joins others does not."""
    crowd = Crowd(lab, count=1, catch_up="20/s")
    crowd.publish(200)
    assert crowd.drain() == 20
    asyncio.run(joined(crowd))


async def joined(crowd: Crowd) -> None:
    (app,) = crowd.apps
    async with app.running():  # somebody has been there for a while
        crowd.clock.advance(seconds=20)
        await asyncio.sleep(0.2)
        worker = app.worker(until_idle=True)
        await worker.run()
        assert worker.gate.allowed("ask", worker.clock.monotonic()) is None


async def test_a_queue_that_is_resumed_begins_slowly(lab: Lab) -> None:
    """The worker was there all the time, and the queue was paused."""
    crowd = Crowd(lab, count=1, catch_up="20/s")
    (app,) = crowd.apps
    async with app.running():
        crowd.clock.advance(seconds=60)
        app.publish("question", 0)
        await until_began(crowd, 1)
        lab.operations.queues.pause("ask")
        await asyncio.sleep(1.5)
        await asyncio.to_thread(crowd.publish, 300)
        lab.operations.queues.resume("ask")
        await until_began(crowd, 10)
        await asyncio.sleep(1.0)  # the clock stands: no more than a burst
        assert len(crowd.began) <= 1 + 20 + 1  # and a token that the worker had kept
        for _ in range(40):
            crowd.clock.advance(seconds=1)
            await asyncio.sleep(0.05)
        await until_began(crowd, 301)


async def until_began(crowd: Crowd, count: int) -> None:
    for _ in range(1000):
        if len(crowd.began) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(crowd.began)} began, not {count}")
