"""What can be seen of a RabbitMQ's queues and exchanges without changing anything, on the real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from uuid import uuid4

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from holdfast.transports import RabbitMQ
from holdfast.transports.contract import Source, TransportBroken
from holdfast.transports.rabbitmq import DeadLetters, Exchange, Queue, examining
from holdfast.transports.rabbitmq.examining import SeenQueue, queue_remarks
from holdfast.transports.rabbitmq.link import Link
from holdfast.transports.rabbitmq.topology import Topology
from tests.transports.wire import Wire


@pytest.fixture
def channel(rabbitmq: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq))
    yield connection.channel()
    connection.close()


@pytest.fixture
def name(channel: BlockingChannel) -> Iterator[str]:
    made = f"seen-{uuid4().hex[:8]}"
    yield made
    for queue in (made, f"{made}.dlq"):
        channel.queue_delete(queue)
    for exchange in (made, f"{made}.dlx"):
        channel.exchange_delete(exchange)


async def seen(url: str, queue: str) -> SeenQueue:
    link = Link(RabbitMQ(url), lambda _: None)
    await link.open(Topology())
    try:
        return await examining.look_at(link, queue)
    finally:
        await link.close()


@pytest.mark.parametrize(
    ("durable", "arguments"),
    [
        (False, {}),
        (True, {}),
        (True, {"x-queue-type": "quorum"}),
        (True, {"x-queue-type": "quorum", "x-delivery-limit": 5, "x-max-length": 10, "x-overflow": "drop-head"}),
        (
            True,
            {
                "x-message-ttl": 1000,
                "x-dead-letter-exchange": "gone",
                "x-dead-letter-routing-key": "12",
                "x-expires": 10_000_000,
                "x-max-length-bytes": 10_000,
                "x-single-active-consumer": True,
            },
        ),
    ],
)  # fmt: skip
async def test_the_settings_of_a_queue_are_learned(
    rabbitmq: str, channel: BlockingChannel, name: str, durable: bool, arguments: dict[str, object]
) -> None:
    channel.queue_declare(name, durable=durable, arguments=arguments)
    found = await seen(rabbitmq, name)
    assert (found.durable, found.is_whole) == (durable, True)
    assert {key: found.arguments.get(key) for key in arguments} == arguments
    assert set(found.arguments) - set(arguments) <= {"x-queue-type"}
    channel.queue_declare(name, durable=durable, arguments=arguments)  # it is as it was


async def test_what_is_not_there_is_not_made(
    rabbitmq: str, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = f"missing-{uuid4().hex[:8]}"
    broker = RabbitMQ(rabbitmq, may_declare=False)
    remarks = await broker.examine([missing], Source(missing))
    assert [each.name for each in remarks] == ["exchange-missing", "queue-missing"]
    ours = RabbitMQ(rabbitmq, declare=[Exchange(missing)])
    found = await ours.examine([missing], Source(missing))
    assert [(each.name, each.severity) for each in found] == [
        ("exchange-not-yet", "note"),
        ("queue-not-yet", "note"),
    ]
    monkeypatch.setattr(examining, "_is_there", there)  # as if they were deleted a moment later
    await RabbitMQ(rabbitmq).examine([missing], Source(missing))
    for look in (channel.queue_declare, channel.connection.channel().exchange_declare):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            look(missing, passive=True)


async def there(*_: object, **__: object) -> bool:
    return True


@pytest.mark.covers("V27", "V28")
async def test_a_declared_queue_with_dead_letters_has_no_remarks(
    rabbitmq: str, channel: BlockingChannel, name: str
) -> None:
    queue = Queue(name, {name: ["order.#"]}, dead_letters=DeadLetters(f"{name}.dlx", f"{name}.dlq"))
    broker = RabbitMQ(rabbitmq, declare=[Exchange(name), queue])
    sender = broker.sender([name])
    await sender.open()
    await sender.close()
    assert await broker.examine([name], None) == []
    found = await seen(rabbitmq, name)
    assert (found.dead_letters, found.arguments["x-dead-letter-routing-key"]) == (
        f"{name}.dlx",
        f"{name}.dlq",
    )


async def test_an_exchange_that_a_restart_loses(rabbitmq: str, channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "headers", durable=False)
    (remark,) = await RabbitMQ(rabbitmq).examine([name], None)
    assert remark.name == "exchange-not-durable"


async def test_a_dead_letter_exchange_that_is_missing(
    rabbitmq: str, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(
        name, durable=True, arguments={"x-queue-type": "quorum", "x-dead-letter-exchange": f"{name}.dlx"}
    )
    assert [each.name for each in await RabbitMQ(rabbitmq).examine([], Source(name))] == [
        "dead-letters-missing"
    ]


async def test_several_may_be_quiet_at_once(rabbitmq: str) -> None:
    """pika's warnings are left out while brokers are examined, and come again afterwards."""
    missing = f"missing-{uuid4().hex[:8]}"
    logger = logging.getLogger("pika.channel")
    before = (logger.level, list(logger.filters))
    await asyncio.gather(*(RabbitMQ(rabbitmq).examine([missing], Source(missing)) for _ in range(3)))
    assert (logger.level, list(logger.filters)) == before


async def test_a_broker_that_falls_silent_keeps_nobody_waiting(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.transports.rabbitmq.EXAMINE_SECONDS", 0.2)

    async def silent(*_: object, **__: object) -> bool:
        await asyncio.sleep(60)
        return True

    monkeypatch.setattr(examining, "_is_there", silent)
    with pytest.raises(TransportBroken, match=r"could not be examined within 0\.2 s"):
        await RabbitMQ(wire.url).examine(["x"], None)


async def test_a_broker_that_is_away(rabbitmq: str) -> None:
    with pytest.raises(TransportBroken):
        await RabbitMQ("amqp://guest@127.0.0.1:1/").examine([], None)


@pytest.mark.parametrize(
    ("queue", "server", "ordered", "names"),
    [
        (SeenQueue("q", durable=False), (3, 10), False, ["queue-not-durable", "no-dead-letters"]),
        (SeenQueue("q"), (3, 10), False, ["classic-queue", "no-dead-letters"]),
        (SeenQueue("q", auto_delete=True), (4,), False, ["classic-queue", "queue-goes-away", "no-dead-letters"]),
        (SeenQueue("q", arguments={"x-queue-type": "quorum"}), (3, 10), False, ["no-dead-letters"]),
        (SeenQueue("q", arguments={"x-queue-type": "quorum"}), (4, 0), False, ["queue-drops"]),
        (SeenQueue("q", arguments={"x-queue-type": "quorum", "x-delivery-limit": -1}), (4,), 0, ["no-dead-letters"]),
        (
            SeenQueue("q", arguments={"x-queue-type": "quorum", "x-dead-letter-exchange": "d"}),
            (4,),
            True,
            ["several-consumers"],
        ),
        (SeenQueue("q", arguments={"x-message-ttl": 5}), (4,), False, ["classic-queue", "queue-drops"]),
        (
            SeenQueue("q", arguments={"x-max-length": 5, "x-overflow": "reject-publish"}),
            (4,),
            False,
            ["classic-queue", "no-dead-letters"],
        ),
        (SeenQueue("q", arguments={"x-max-length": 5}), (4,), False, ["classic-queue", "queue-drops"]),
        (SeenQueue("q", is_whole=False), (4,), True, []),
    ],
)  # fmt: skip
def test_what_is_unsafe(queue: SeenQueue, server: tuple[int, ...], ordered: bool, names: list[str]) -> None:
    assert [each.name for each in queue_remarks(queue, server, ordered=ordered)] == names
