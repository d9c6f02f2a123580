"""What came through an inbox fails, blocks its stream, is set aside, halts and dies exactly like what was published."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from holdfast import Context, Dead, Holdfast, RetryPolicy
from holdfast.transports import MemoryBroker
from tests.inboxes.conftest import until
from tests.inboxes.test_intake import event, send
from tests.worker.conftest import lab_at
from tests.worker.lab import Lab

RETRY = RetryPolicy(attempts_max=3, base=10.0, factor=2.0, cap=100.0, jitter=0.0)
STREAMS = {"a": "fails", "b": "dies", "c": "works", "d": "mends"}  # what the first message of each does
Way = Literal["outbox", "inbox"]


def serve(app: Holdfast, order: Any, on_dead: Any) -> list[tuple[str, int]]:
    handled: list[tuple[str, int]] = []

    @app.handler("order.placed", name="bill", retry=RETRY, order=order, on_dead=on_dead)
    def bill(body: dict[str, Any], ctx: Context) -> None:
        stream, n = str(ctx.stream), body["n"]
        if n == 0 and STREAMS[stream] == "dies":
            raise Dead("no such customer")
        if n == 0 and (STREAMS[stream] == "fails" or (STREAMS[stream] == "mends" and ctx.attempt < 2)):
            raise ConnectionError("the bank is away")
        handled.append((stream, n))

    return handled


async def brought(lab: Lab, app: Holdfast, way: Way) -> None:
    """Three messages in each stream, by a publish or by a broker."""
    numbers = [(stream, n) for n in range(3) for stream in STREAMS]
    if way == "outbox":
        app.publish_many(app.message("order.placed", {"n": n}, stream=stream) for stream, n in numbers)
        return
    broker = MemoryBroker()
    broker.bind("shop", "#", queue="q")
    app.inbox("billing", broker, queue="q", stream="{partitionkey}")
    app.prepare()
    events = [event(n, f"/shop/{stream}", stream) for stream, n in numbers]
    await send(broker, *events)
    async with app.running(queues=["inbox/billing"]):
        await until(lambda: len(lab.rows("message")) == len(numbers))


def stands(lab: Lab, app: Holdfast) -> dict[str, Any]:
    """Everything that operators see, without what differs by nature: ids, headers, times of storing."""
    operations = app.operations
    pending = [
        (each.stream, json.loads(content.body)["n"], each.state, each.head, each.attempts, each.failures, each.reason,
         each.claimable_at and each.claimable_at.replace(microsecond=0))
        for found in operations.messages.find(newest=False)
        for each, content in operations.messages.show(found.id).pending
    ]  # fmt: skip
    dead = [
        (each.stream, each.attempts, each.reason, each.last_reason, each.halts, each.error)
        for each in operations.dead.list(newest=False)
    ]
    streams = [
        (each.stream, each.open, each.state, bool(each.halted_by))
        for each in operations.streams.list(queue="bill")
    ]
    return {
        "pending": sorted(pending, key=str),
        "dead": sorted(dead, key=str),
        "streams": sorted(streams, key=str),
        "ended": sorted((row.stream, row.outcome, row.attempts) for row in lab.rows("history")),
    }


@pytest.mark.covers("W101")
@pytest.mark.parametrize("on_dead", ["continue", "halt"])
@pytest.mark.parametrize("order", ["strict", "available"])
def test_the_rules_of_failing_and_blocking_are_the_same(
    place: str, tmp_path: Path, order: str, on_dead: str
) -> None:
    told: dict[str, list[Any]] = {}
    for way in get_args(Way):
        (tmp_path / way).mkdir()
        with contextmanager(lab_at)(place, tmp_path / way) as lab:
            told[way] = played(lab, way, order, on_dead)
    assert told["inbox"] == told["outbox"]
    last = told["inbox"][-1]
    # That the table is not empty: one of its own word, one that spent its attempts.
    assert len(last["dead"]) == 2
    if (order, on_dead) == ("strict", "halt"):
        assert [each[0] for each in last["streams"] if each[3]] == ["a", "b"]


def played(lab: Lab, way: Way, order: str, on_dead: str) -> list[Any]:
    """What is handled and how everything stands, step by step."""
    app, clock = lab.still()
    handled = serve(app, order, on_dead)
    app.prepare()
    asyncio.run(brought(lab, app, way))
    steps: list[Any] = [stands(lab, app)["streams"]]
    for seconds in (0, 11, 21, 200):  # the first attempts, the retries after 10 s and 20 s, and what is left
        clock.advance(seconds=seconds)
        asyncio.run(app.worker(queues=["bill"], until_idle=True).run())
        steps += [sorted(handled), _ages(stands(lab, app), clock)]
    return steps


def _ages(told: dict[str, Any], clock: Any) -> dict[str, Any]:
    """Times as seconds from now: the two ran at different times."""
    now = clock.now()
    told["pending"] = [
        (*each[:-1], each[-1] and round((each[-1] - now).total_seconds(), -1)) for each in told["pending"]
    ]
    return told
