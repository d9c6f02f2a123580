"""The inbox on RabbitMQ 3.10 and 4.0: killed at every step, restarted often, with the database away."""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import uuid4

import pytest

from holdfast import DeadLetter, Holdfast
from holdfast.inboxes import intake
from holdfast.testing.transports.setting import send
from holdfast.transports import CONFIRMED, DeadLetters, Exchange, Outgoing, Queue, RabbitMQ
from tests import servers
from tests.inboxes.conftest import until

pytestmark = pytest.mark.one_postgres


def broker_of(url: str, name: str, **queue: Any) -> RabbitMQ:
    return RabbitMQ(url, declare=[Exchange(name), Queue(name, {name: ["#"]}, **queue)])


def event(name: str, n: int, stream: str = "s", source: str = "/shop") -> Outgoing:
    attributes = {
        "specversion": "1.0",
        "id": str(n),
        "source": source,
        "type": "order.placed",
        "partitionkey": stream,
    }
    headers = {f"cloudEvents:{key}": value for key, value in attributes.items()}
    return Outgoing(name, b'{"n":%d}' % n, str(n), "order.placed", "order.placed", headers)


async def sent(broker: RabbitMQ, *messages: Outgoing) -> None:
    sender = broker.sender()
    await sender.open()
    told = await send(sender, list(messages))
    assert all(told[n] == CONFIRMED for n in range(len(messages)))
    await sender.close()


async def left(broker: RabbitMQ, name: str) -> int:
    """How many messages a queue has that nobody has taken."""
    sender = broker.sender()
    await sender.open()
    try:
        link: Any = sender._link  # type: ignore[attr-defined]
        channel = await link.channel()
        frame = await link.call(channel, "queue_declare", queue=name, passive=True)
        return int(frame.method.message_count)
    finally:
        await sender.close()


def listening(app: Holdfast) -> list[int]:
    seen: list[int] = []

    @app.handler("order.placed")
    async def bill(body: dict[str, Any]) -> None:
        seen.append(body["n"])

    return seen


@pytest.mark.covers("X53", "W104", "X43")
async def test_streams_in_order_once(app: Holdfast, rabbitmq: str) -> None:
    name = f"inbox-{uuid4()}"
    broker = broker_of(rabbitmq, name, is_single_active=True)
    app.inbox("billing", broker, queue=name, stream="{partitionkey}", prefetch=30)
    seen = listening(app)
    await sent(broker, *(event(name, n, f"s{n % 4}") for n in range(200)))
    async with app.running():
        await until(lambda: len(seen) >= 90)
    await sent(broker, *(event(name, n, f"s{n % 4}") for n in range(150, 220)))
    async with app.running():
        await until(lambda: len(seen) >= 220)
        await asyncio.sleep(0.2)
    assert [[n for n in seen if n % 4 == k] for k in range(4)] == [list(range(k, 220, 4)) for k in range(4)]


@pytest.mark.covers("V29", "V30", "V31")
async def test_the_dead_letter_queue_of_the_broker(
    app: Holdfast, rabbitmq: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody takes within 50 ms is given up by the broker, and is a dead letter here with that reason.

    It is logged as an error with the sender's id and the reason, and the application makes a ticket of it.
    """
    tickets: list[DeadLetter] = []

    @app.on_dead_letter
    async def ticket(letter: DeadLetter) -> None:
        tickets.append(letter)

    name = f"grading-{uuid4()}"
    dead = DeadLetters(f"{name}.dlx", f"{name}.dlq")
    broker = broker_of(rabbitmq, name, dead_letters=dead, arguments={"x-message-ttl": 50})
    app.inbox("graveyard", broker, queue=dead.queue, dead_letters=True)
    seen = listening(app)
    await sent(broker, event(name, 1), event(name, 2))
    async with app.running():
        await until(lambda: len(app.operations.dead.list()) == 2)
        letters = app.operations.dead.list()
        assert {each.error for each in letters} == {"The broker had given it up: expired"}
        await until(lambda: len(tickets) == 2)
        for each in letters:
            app.operations.dead.redrive(each.id)
        await until(lambda: sorted(seen) == [1, 2])
    assert {each.id for each in tickets} == {each.id for each in letters}
    told = [each for each in caplog.records if getattr(each, "event", "") == "inbox.dead_letter"]
    assert sorted((each.levelname, each.request_id, each.error) for each in told) == [  # type: ignore[attr-defined]
        ("ERROR", id, "The broker had given it up: expired") for id in ("1", "2")
    ]


@pytest.mark.covers("X53")
@pytest.mark.parametrize("step", ["storing", "stored", "acknowledged"])
@pytest.mark.timeout(120)
async def test_killed_at_each_step(url: str, rabbitmq: str, step: str) -> None:
    """kill -9 between reading and acknowledging: nothing is lost, nothing is twice, the order is kept.

    `storing` shows that nothing is acknowledged before it is stored, and `acknowledged` that the broker has it then.
    """
    name = f"inbox-{uuid4()}"
    broker = broker_of(rabbitmq, name, is_single_active=True)
    await sent(broker, *(event(name, n) for n in range(100)))
    for _ in range(2):
        command = [sys.executable, "-m", "tests.inboxes.child", url, rabbitmq, name, step]
        child = await asyncio.create_subprocess_exec(*command)
        assert await asyncio.wait_for(child.wait(), 60) == -9
    app = Holdfast(url)
    app.inbox("billing", broker, queue=name, stream="{partitionkey}", prefetch=50)
    seen = listening(app)
    async with app.running():
        await until(lambda: len(seen) >= 100)
        await asyncio.sleep(0.2)
    app.close()
    assert seen == list(range(100))


@pytest.mark.timeout(120)
async def test_thirty_restarts_with_unacknowledged_messages_lose_nothing(
    app: Holdfast, rabbitmq: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ 4 drops a message of a quorum queue after 20 deliveries, unless the queue says otherwise: ours does."""
    name = f"inbox-{uuid4()}"
    broker = broker_of(rabbitmq, name)
    inbox = app.inbox("billing", broker, queue=name)
    await sent(broker, *(event(name, n) for n in range(10)))
    receiver = broker.receiver(inbox.source)
    for _ in range(30):
        await receiver.open()
        assert await receiver.receive(10)
        await receiver.close()
    seen = listening(app)
    async with app.running():
        await until(lambda: len(seen) == 10)
    assert sorted(seen) == list(range(10))


@pytest.mark.covers("X53")
@pytest.mark.timeout(180)
async def test_the_database_goes_away_while_it_receives(
    postgres_faulty: servers.Server, rabbitmq: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "AWAY", 1.0)
    name = f"inbox-{uuid4()}"
    broker = broker_of(rabbitmq, name, is_single_active=True)
    dsn = postgres_faulty.create_database()
    app = Holdfast(dsn)
    app.migrate()
    app.inbox("billing", broker, queue=name, stream="{partitionkey}", prefetch=20)
    seen = listening(app)
    async with app.running():
        for turn in range(3):
            await sent(broker, *(event(name, n) for n in range(turn * 100, turn * 100 + 100)))
            await until(lambda turn=turn: len(seen) > turn * 100)
            await asyncio.to_thread(postgres_faulty.kill9)
            await asyncio.sleep(1.5 if turn == 1 else 0.2)
            await asyncio.to_thread(postgres_faulty.start)
        await until(lambda: len(set(seen)) == 300, 60)
        await until(lambda: not app.operations.messages.find())
    assert [n for k, n in enumerate(seen) if n not in seen[:k]] == list(range(300)), (
        "the order of the first calls"
    )
    assert await left(broker, name) == 0
    app.close()
