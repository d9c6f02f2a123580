"""What an outage costs: connection attempts counted over 72 simulated hours, and real outages on RabbitMQ."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from holdfast.clock import MovableClock
from holdfast.rules.reconnect import Attempts
from holdfast.transports import MemoryBroker, relay
from tests import brokers
from tests.delivery import services
from tests.delivery.storm import Service, declared
from tests.proof.counts import COUNTS
from tests.transports.wire import Wire
from tests.worker.lab import Lab, auntil, until

HOURS = 72
STEP = 2.0  # simulated seconds between two looks of a relay at its connection
REAL_SECONDS = float(os.environ.get("HOLDFAST_OUTAGE_SECONDS", "120"))


class Counting(MemoryBroker):
    """Notes when somebody tried to connect."""

    def __init__(self, clock: MovableClock) -> None:
        super().__init__()
        self.clock = clock
        self.attempts: list[float] = []

    def admit(self, connection: Any) -> None:
        self.attempts.append(self.clock.monotonic())
        super().admit(connection)


def publish(app: Any, streams: int, count: int) -> None:
    app.publish_many(
        app.message("order.placed", {"n": n}, stream=f"s{k}") for n in range(count) for k in range(streams)
    )


@pytest.mark.covers("X51")
@pytest.mark.one_postgres
@pytest.mark.timeout(120)
@pytest.mark.parametrize("streams", [1, 1000])
async def test_72_hours_without_a_broker(lab: Lab, streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs all the time; its relay lets the time pass whenever it rests. The broker is away for 72 hours."""
    app, clock = lab.still()
    broker = Counting(clock)
    broker.bind("shop.events", "order.#", queue="billing")
    app.destination("orders", broker, types=["order.*"], to="shop.events")
    publish(app, streams, 20 if streams == 1 else 2)
    broker.go_down()
    begun = clock.monotonic()
    over = asyncio.Event()

    async def rest(line: Any) -> None:
        if clock.monotonic() - begun >= HOURS * 3600:
            over.set()
            await asyncio.sleep(0.01)
        clock.advance(seconds=STEP)
        await asyncio.sleep(0)

    monkeypatch.setattr(relay._Line, "rest", rest)
    async with lab.working(app):
        await asyncio.wait_for(over.wait(), 100)
        attempts = [each for each in broker.attempts if each - begun < HOURS * 3600]
        assert broker.sent == []
        assert lab.rows("dead") == []
        assert {(row.attempts, row.failures, row.refunds, row.epoch) for row in lab.rows("message")} == {
            (0, 0, 0, 0)
        }
        broker.come_up()
        await auntil(lab.is_empty, lab.describe)
    assert len(attempts) <= 3 * 60 * HOURS
    assert most_in_a_minute([each - begun for each in attempts], after=60.0) <= 3
    assert max(later - before for before, later in itertools.pairwise(attempts)) <= 30.0 + STEP
    for k in range(streams):
        assert numbers(broker, f"s{k}") == list(range(20 if streams == 1 else 2))
    COUNTS.add("outages", "simulated hours", HOURS)
    COUNTS.add("outages", "connection attempts in them", len(attempts))


@pytest.mark.covers("X51")
async def test_a_broker_that_accepts_and_drops_is_not_tried_without_a_pause() -> None:
    """Each connection opens and is lost before anything came through it: that is no success."""
    clock, broker, line = lonely()
    for _ in range(4000):
        await line.mend(asyncio.Event())
        broker.cut()
        clock.advance(seconds=STEP)
    assert most_in_a_minute([each - broker.attempts[0] for each in broker.attempts], after=60.0) <= 3


@pytest.mark.covers("X51")
async def test_a_connection_that_stood_for_long_is_opened_again_at_once() -> None:
    clock, broker, line = lonely()
    for _ in range(20):  # lost now and then, and nothing was sent in between
        await line.mend(asyncio.Event())
        assert line.is_open()
        clock.advance(seconds=3600)
        broker.cut()
        await line.mend(asyncio.Event())
        assert line.is_open()


@pytest.mark.covers("X51")
@pytest.mark.parametrize("lines", [2, 7])
async def test_the_connections_of_a_process_take_turns(lines: int) -> None:
    """Together they try as often as one would. When the broker is back, one finds it, and the others come at once."""
    clock = MovableClock()
    broker, attempts = Counting(clock), Attempts()
    all_of_them = [relay._Line(broker.sender([]), f"d{n}", clock, attempts) for n in range(lines)]
    broker.go_down()
    begun = clock.monotonic()
    for _ in range(4000):
        for line in all_of_them:
            await line.mend(asyncio.Event())
        clock.advance(seconds=STEP)
    assert most_in_a_minute([each - begun for each in broker.attempts], after=60.0) <= 3
    broker.come_up()
    while not any(line.is_open() for line in all_of_them):
        for line in all_of_them:
            await line.mend(asyncio.Event())
        clock.advance(seconds=STEP)
    for line in all_of_them:
        await line.mend(asyncio.Event())
    assert all(line.is_open() for line in all_of_them)


async def test_destinations_and_inboxes_of_one_broker_belong_together(sqlite_lab: Lab) -> None:
    app, broker, other = sqlite_lab.app(), MemoryBroker(), MemoryBroker()
    one = app.destination("one", broker, types=["order.*"], to="shop.events")
    two = app.destination("two", broker, types=["order.*"], to="shop.events")
    elsewhere = app.destination("three", other, types=["order.*"], to="shop.events")
    app.inbox("in", broker, queue="q")
    (intake,) = app._working.intakes(None)
    assert one.attempts is two.attempts is intake._attempts  # type: ignore[attr-defined]
    assert elsewhere.attempts is not one.attempts


def lonely() -> tuple[MovableClock, Counting, Any]:
    """A connection without a worker, on a clock that stands."""
    clock = MovableClock()
    broker = Counting(clock)
    return clock, broker, relay._Line(broker.sender([]), "orders", clock)


def most_in_a_minute(at: list[float], after: float) -> int:
    late = [each for each in at if each >= after]
    return max(sum(first <= each < first + 60 for each in late[n : n + 10]) for n, first in enumerate(late))


def numbers(broker: MemoryBroker, stream: str) -> list[int]:
    return [
        json.loads(each.body)["n"]
        for each in broker.sent
        if each.headers["cloudEvents:partitionkey"] == stream
    ]


# --- Real ones --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(lab: Lab, own_broker: brokers.Broker) -> Iterator[Service]:
    """The shop of the two services, in a process of its own; nobody reads what it sends."""
    exchange = f"outage-{uuid4().hex[:8]}"
    asyncio.run(declared(own_broker.url, exchange))
    time.sleep(2)  # RabbitMQ writes down a little later that it has the queues
    service = Service("shop", lab, Wire(own_broker.url), exchange)
    yield service
    lab.end_processes()
    service.wire.close()


def sent(lab: Lab) -> int:
    return int(lab.query("select count(*) from {history}")[0][0])


@pytest.mark.faults("delivery")
@pytest.mark.covers("X51")
@pytest.mark.timeout(1800)
def test_a_real_outage(shop: Service, own_broker: brokers.Broker) -> None:
    """Callers keep committing, nothing dies, and the first message goes out soon after the broker is back."""
    lab = shop.lab
    customer = shop.customer()
    shop.start()
    publish(customer, 10, 10)
    until(lab.is_empty, lab.said)
    own_broker.kill9()
    away = time.monotonic()
    published = 100
    while time.monotonic() - away < REAL_SECONDS:
        publish(customer, 10, 1)
        published += 10
        time.sleep(1.0)
    tried = [each - away for each in shop.wire.attempts if each >= away]
    most = most_in_a_minute(tried, after=60.0) if REAL_SECONDS > 60 else 0
    assert most <= 3, tried  # its relay and its inbox together: they are in one process
    assert sent(lab) == 100
    assert lab.rows("lease") == []
    own_broker.start()
    back = time.monotonic()
    until(lambda: sent(lab) > 100, lab.said, 60)
    first = time.monotonic() - back
    until(lambda: sent(lab) == published, lab.said, 60)
    customer.close()
    assert lab.rows("dead") == []
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}
    assert first <= 35.0
    COUNTS.add("outages", "real seconds", round(REAL_SECONDS))
    COUNTS.add("outages", "connection attempts in them", len(tried))
    COUNTS.add("outages", "tenths of a second from the return to the first message", round(first * 10))


@pytest.mark.faults("delivery")
@pytest.mark.timeout(600)
def test_the_rate_after_a_relay_was_killed(shop: Service) -> None:
    """1,000 messages are under way and not confirmed when it is killed. Half of the rate before counts as back."""
    lab, total = shop.lab, 30_000
    customer = shop.customer()
    for _ in range(30):
        publish(customer, 100, total // 3000)
    shop.start()
    until(lambda: sent(lab) > 2000, lab.said)
    begun, before = time.monotonic(), sent(lab)
    until(lambda: sent(lab) > 8000, lab.said)
    rate = (sent(lab) - before) / (time.monotonic() - begun)
    shop.wire.swallow_answers()
    until(lambda: shop.wire.published - sent(lab) >= 1000, lab.said)
    shop.kill()
    killed = time.monotonic()
    shop.wire.swallow_answers(False)
    took = None
    while took is None and sent(lab) < total:
        at, count = time.monotonic(), sent(lab)
        time.sleep(1.0)
        if (sent(lab) - count) / (time.monotonic() - at) >= rate / 2:
            took = at - killed
    customer.close()
    until(lab.is_empty, lab.said, 60)
    assert took is not None, "it was not back before everything was sent"
    assert took <= services.LEASE + 10
    assert lab.rows("dead") == []
    COUNTS.add("outages", "tenths of a second from a kill of a relay to its rate", round(took * 10))
