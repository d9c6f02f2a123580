"""A queue that is paused: what runs ends, what has not begun goes back, nothing more is handed out."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import Context
from tests.worker.lab import Lab, auntil, settled


@pytest.mark.parametrize("stream", [None, "s"])
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_a_pause_gives_back_what_has_not_begun(lab: Lab, kind: str, stream: str | None) -> None:
    app, seen = lab.app(), []
    begun, go_on = threading.Event(), threading.Event()

    async def wait(body: dict) -> None:
        seen.append(body["n"])
        begun.set()
        if body["n"] == 3:
            await asyncio.to_thread(go_on.wait, 60)

    if kind == "async":
        app.handler("a", name="work", concurrency=1)(wait)
    else:

        @app.handler("a", name="work", concurrency=1)
        def work(body: dict) -> None:
            seen.append(body["n"])
            if body["n"] == 3:
                begun.set()
                go_on.wait(60)

    @app.handler("b")
    async def other(body: dict) -> None:
        seen.append("other")

    app.publish_many(app.message("a", {"n": n}, stream=stream) for n in range(40))
    async with lab.working(app):
        await auntil(lambda: 3 in seen, lab.describe)
        await asyncio.to_thread(lab.operations.queues.pause, "work", "the printer is broken")
        await auntil(lambda: len(lab.rows("lease")) == 1, lab.describe)  # only what runs is still leased
        await app.apublish("b", {})
        await auntil(lambda: "other" in seen, lab.describe)
        go_on.set()
        await auntil(lambda: len(lab.rows("lease")) == 0, lab.describe)
        assert [n for n in seen if n != "other"] == [0, 1, 2, 3]
        waiting = lab.rows("message")
        assert len(waiting) == 36
        assert {(row.attempts, row.failures, row.vanished) for row in waiting} == {(0, 0, 0)}
        await asyncio.to_thread(lab.operations.queues.resume, "work")
        await settled(lab)
    handled = [n for n in seen if n != "other"]
    # Without a stream there is no order: what was given back is claimable later than what was never handed out.
    assert (handled if stream is not None else sorted(handled)) == list(range(40))
    assert {row.attempts for row in lab.rows("history")} == {1}


async def test_a_pause_is_learned_although_the_worker_needs_nothing(lab: Lab) -> None:
    """Its hands are full and its handlers are slow; the rest of a run must not begin all the same."""
    app, seen = lab.app(), []
    go_on = asyncio.Event()

    @app.handler("a", concurrency=1)
    async def work(body: dict, ctx: Context) -> None:
        seen.append(body["n"])
        if body["n"] == 5:
            await go_on.wait()

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(20))
    async with lab.working(app) as worker:
        await auntil(lambda: 5 in seen, lab.describe)
        await asyncio.to_thread(lab.operations.queues.pause, "work", "why not")
        await auntil(lambda: "work" in worker.pacing.paused, lab.describe)
        go_on.set()
        await auntil(lambda: worker.pacing.idle, lab.describe)
        assert seen == [0, 1, 2, 3, 4, 5]
        await asyncio.to_thread(lab.operations.queues.resume, "work")
        await settled(lab)
    assert seen == list(range(20))


async def test_a_worker_that_starts_on_a_paused_queue_takes_nothing(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a")
    async def work(body: dict) -> None:
        seen.append(body["n"])

    @app.handler("b")
    async def other(body: dict) -> None:
        seen.append("other")

    app.publish("a", {"n": 1})
    lab.operations.queues.pause("work", "before it began")
    app.publish("b", {})
    async with lab.working(app):
        await auntil(lambda: seen == ["other"], lab.describe)
        assert lab.rows("message")[0].attempts == 0
        await asyncio.to_thread(lab.operations.queues.resume, "work")
        await settled(lab)
    assert seen == ["other", 1]
