"""The relay on RabbitMQ 3.10 and 4.0, from both databases: cut connections, kills of either side, what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy
from holdfast.model.message import Reason
from holdfast.testing.transports.setting import Setting, read_all
from holdfast.transports import Incoming, RabbitMQ
from tests import brokers
from tests.transports.test_hazards import setting
from tests.transports.wire import Wire
from tests.worker.lab import Lab, auntil, settled

AT_ONCE = RetryPolicy(attempts_max=50, base=0.001, factor=1.0, cap=0.001)
STREAMS = [f"s{n}" for n in range(10)]


async def made(given: Setting) -> None:
    """Its exchanges and its queue, as if somebody had made them before."""
    sender = given.connector.sender([given.to])
    await sender.open()
    await sender.close()


def publish(app: Holdfast, count: int, start: int = 0) -> None:
    app.publish_many(
        app.message("order.placed", {"n": n}, stream=stream, subject=f"{stream}-{n}")
        for n in range(start, start + count)
        for stream in STREAMS
    )


def in_order(came: list[Incoming], count: int) -> int:
    """Each stream came whole and in its order, to a receiver that leaves out what it has seen; how many came twice."""
    seen: dict[str, dict[str, int]] = {}
    for each in came:
        body = json.loads(each.body)
        seen.setdefault(str(each.headers["cloudEvents:partitionkey"]), {}).setdefault(str(each.id), body["n"])
    assert {stream: list(ids.values()) for stream, ids in seen.items()} == {
        stream: list(range(count)) for stream in STREAMS
    }
    return len(came) - count * len(STREAMS)


@pytest.mark.covers("X52", "V3", "V4")
async def test_cut_connections_lose_nothing_and_keep_the_order(lab: Lab, wire: Wire) -> None:
    given = setting(wire.url)
    app = lab.app()
    app.destination("orders", given.connector, types=["order.*"], to=given.to, key="key")
    async with lab.working(app):
        for round in range(5):
            publish(app, 20, start=20 * round)
            await asyncio.sleep(0.03 * round)
            await asyncio.to_thread(wire.cut)
        await settled(lab)
    assert wire.cuts > 0
    in_order(await read_all(given), 100)
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}, "unsent costs nothing"
    assert lab.rows("dead") == []


@pytest.mark.covers("X52", "C25")
async def test_bad_messages_among_good_ones(lab: Lab, rabbitmq: str) -> None:
    given = setting(rabbitmq, body_bytes=5000)
    app = lab.app()
    app.destination(
        "orders", given.connector, types=["order.*"], to="{headers.to}", key="{headers.key}",
        retry=RetryPolicy(attempts_max=3, base=0.01, factor=1.0, cap=0.01),
    )  # fmt: skip

    def order(n: int, to: str, key: str = "key", size: int = 0) -> Any:
        headers = {"to": to, "key": key}
        return app.message("order.placed", {"n": n, "x": "x" * size}, headers=headers, subject=str(n))

    bad = {
        7: order(7, given.to, given.nowhere),
        13: order(13, given.missing),
        21: order(21, given.to, size=6000),
    }
    app.publish_many(bad.get(n) or order(n, given.to) for n in range(60))
    async with lab.working(app):
        await settled(lab)
    came = Counter(json.loads(each.body)["n"] for each in await read_all(given))
    assert set(came) == set(range(60)) - set(bad)
    assert {(row.subject, row.reason, row.attempts) for row in lab.rows("dead")} == {
        ("7", Reason.POISON_MESSAGE, 3), ("13", Reason.POISON_MESSAGE, 3), ("21", Reason.PAYLOAD_TOO_LARGE, 1),
    }  # fmt: skip
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}, (
        "no neighbour is counted"
    )


@pytest.mark.covers("X51")
async def test_a_missing_exchange_or_a_refused_password_keep_it_shut(lab: Lab, rabbitmq: str) -> None:
    given = setting(rabbitmq)
    app = lab.app()
    secret = "canary-5up3r"
    wrong = RabbitMQ(rabbitmq.replace("guest:guest@", "").replace("amqp://", f"amqp://guest:{secret}@"))
    app.destination("missing", given.connector, types=["order.*"], to=given.missing, key="key")
    app.destination("refused", wrong, types=["order.*"], to="", key="key")
    publish(app, 1)
    async with lab.working(app):
        await auntil(lambda: {(row.name, row.state) for row in lab.rows("breaker")} == {
            ("missing", "open"), ("refused", "open"),
        })  # fmt: skip
        await asyncio.sleep(0.5)
        assert {(row.attempts, row.epoch) for row in lab.rows("message")} == {(0, 0)}
    why = {row.name: row.why for row in lab.rows("breaker")}
    assert "missing there" in why["missing"]
    assert "refused the user" in why["refused"]
    assert secret not in f"{why}{app.handlers['refused']!r}"


@pytest.mark.faults("storms")
@pytest.mark.covers("X39")
@pytest.mark.timeout(300)
async def test_relay_processes_that_are_killed_lose_nothing(lab: Lab, rabbitmq: str) -> None:
    given = setting(rabbitmq)
    await made(given)
    writer = lab.app()
    writer.destination("orders", given.connector, types=["order.*"], to=given.to, key="key")
    for round in range(3):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("LAB_BROKER_URL", rabbitmq)
            process = lab.start(target="tests.relay.shop:app", exchange=given.to)
        publish(writer, 100, start=100 * round)
        await auntil(lambda round=round: len(lab.rows("history")) > 1000 * round, lab.describe)
        if round < 2:
            await asyncio.to_thread(process.kill_all)
    await auntil(lab.is_empty, lab.describe, seconds=60)
    in_order(await read_all(given), 300)
    assert lab.rows("dead") == []


@pytest.mark.faults("storms")
@pytest.mark.covers("X23")
@pytest.mark.timeout(300)
async def test_a_relay_that_stands_still_past_its_lease(lab: Lab, rabbitmq: str) -> None:
    """Another one takes over. What the first one still sends has the same ids, and no result of it counts."""
    given = setting(rabbitmq)
    await made(given)
    writer = lab.app()
    writer.destination("orders", given.connector, types=["order.*"], to=given.to, key="key")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LAB_BROKER_URL", rabbitmq)
        process = lab.start(target="tests.relay.shop:app", exchange=given.to)
        publish(writer, 300)
        await auntil(lambda: lab.rows("lease") and len(lab.rows("history")) > 200, lab.describe)
        stopped = [process.pid, *process.children()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        held = {row.seq for row in lab.rows("lease")}
        try:
            lab.start(target="tests.relay.shop:app", exchange=given.to)
            await auntil(lab.is_empty, lab.describe, seconds=60)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        publish(writer, 10, start=300)  # the first one has been at its work again when these are sent
        await auntil(lab.is_empty, lab.describe, seconds=60)
    again = in_order(await read_all(given), 310)
    assert len(lab.rows("history")) == 3100
    assert lab.rows("dead") == []
    print(f"held {len(held)} runs; {again} came twice")


@pytest.mark.faults("storms")
@pytest.mark.timeout(300)
async def test_a_broker_that_is_killed(sqlite_lab: Lab, own_broker: brokers.Broker) -> None:
    given = setting(own_broker.url)
    await made(given)
    await asyncio.sleep(2)  # RabbitMQ writes down a little later that it has the queue
    app = sqlite_lab.app()
    app.destination("orders", given.connector, types=["order.*"], to=given.to, key="key", retry=AT_ONCE)
    async with sqlite_lab.working(app):
        publish(app, 100)
        await auntil(lambda: len(sqlite_lab.rows("history")) > 100)
        await asyncio.to_thread(own_broker.kill9)
        publish(app, 100, start=100)
        await asyncio.to_thread(own_broker.start)
        await auntil(sqlite_lab.is_empty, sqlite_lab.describe, seconds=90)
    came = await read_all(given)
    assert {json.loads(each.body)["n"] for each in came} == set(range(200))
    assert sqlite_lab.rows("dead") == []
    print(f"{own_broker.tree.version}: {in_order(came, 200)} came twice")
