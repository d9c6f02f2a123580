"""What is written to RabbitMQ: the bytes that pika would write, and many messages in one call of the system."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import uuid4

import pytest
from pika import BasicProperties, frame, spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import ShortStringTooLong

from holdfast.transports import Exchange, Queue, RabbitMQ
from holdfast.transports.contract import Confirmed, Fate, Outgoing
from holdfast.transports.rabbitmq.wire import PIECE, Connection

FRAME_MAX = 4096
TEXTS = ["", "a", "1.0", "é\U0001f600", "x" * 300, "order.placed", "/shop", " "]


class Written(Connection):
    """A connection that goes nowhere and keeps what is handed to the system."""

    def __init__(self) -> None:
        self._unwritten, self._unwritten_bytes = [], 0
        self.steps: list[object] = []
        self.params = SimpleNamespace(frame_max=FRAME_MAX)
        self.pieces: list[bytes] = []

    @property
    def ioloop(self) -> SimpleNamespace:
        return SimpleNamespace(call_soon=self.steps.append)

    def _write_out(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        self.pieces.append(b"".join(unwritten))


def by_pika(channel: int, message: Outgoing) -> bytes:
    """The same message as pika marshals it."""
    properties = BasicProperties(
        content_type=message.content_type,
        delivery_mode=2,
        message_id=message.id,
        timestamp=None if message.time is None else int(message.time.timestamp()),
        type=message.type,
        headers=dict(message.headers) or None,
    )
    most = FRAME_MAX - 8
    frames = [
        frame.Method(
            channel, spec.Basic.Publish(exchange=message.to, routing_key=message.key, mandatory=True)
        ),
        frame.Header(channel, len(message.body), properties),
        *(frame.Body(channel, message.body[n : n + most]) for n in range(0, len(message.body), most)),
    ]
    return b"".join(each.marshal() for each in frames)


def some_message(dice: random.Random) -> Outgoing:
    size = dice.choice([0, 1, 300, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX, 200_000])
    return Outgoing(
        to=dice.choice(["", "ex", "é" * 20]),
        body=dice.randbytes(size),
        id=dice.choice(["", str(uuid4()), "é" * 127]),
        type=dice.choice(["", "order.placed", "ü"]),
        key=dice.choice(["", "key", "a" * 255]),
        headers={f"cloudEvents:{n}": dice.choice(TEXTS) for n in range(dice.randrange(5))},
        content_type=dice.choice([None, "", "application/json"]),
        time=dice.choice([None, datetime(2026, 11, 19, 5, 55, 0, 123456, tzinfo=UTC)]),
    )


def test_a_message_is_written_as_pika_writes_it() -> None:
    dice = random.Random(14)
    for n in range(500):
        connection, message, channel = Written(), some_message(dice), n % 3 + 1
        connection.publish(channel, message)
        connection._write_out()
        assert b"".join(connection.pieces) == by_pika(channel, message)


def test_what_is_written_in_one_step_goes_out_together() -> None:
    connection = Written()
    messages = [Outgoing("ex", b"x" * 300, str(uuid4()), "order.placed", "key") for _ in range(500)]
    for each in messages:
        connection.publish(1, each)
    assert len(connection.steps) == len(connection.pieces) + 1  # one for what follows each whole piece
    connection._write_out()
    assert b"".join(connection.pieces) == b"".join(by_pika(1, each) for each in messages)
    assert all(PIECE <= len(each) < PIECE + FRAME_MAX for each in connection.pieces[:-1])


@pytest.mark.parametrize("broken", ["id", "type", "key", "header"])
def test_of_a_message_that_cannot_be_written_nothing_is(broken: str) -> None:
    connection, long, good = Written(), "x" * 256, Outgoing("ex", b"{}", "1", "t", "key")
    bad = {
        "id": Outgoing("ex", b"{}", long, "t", "key"),
        "type": Outgoing("ex", b"{}", "1", long, "key"),
        "key": Outgoing("ex", b"{}", "1", "t", long),
        "header": Outgoing("ex", b"{}", "1", "t", "key", {long: "1"}),
    }[broken]
    connection.publish(1, good)
    with pytest.raises((ValueError, ShortStringTooLong)):
        connection.publish(1, bad)
    connection.publish(1, good)
    connection._write_out()
    assert b"".join(connection.pieces) == 2 * by_pika(1, good)


async def test_a_batch_is_handed_to_the_system_in_few_calls(
    rabbitmq: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[int] = []
    emit = AsyncioConnection._adapter_emit_data

    def counted(self: AsyncioConnection, data: bytes) -> None:
        handed.append(len(data))
        emit(self, data)

    name = f"few-{uuid4().hex[:8]}"
    broker = RabbitMQ(rabbitmq, declare=[Exchange(name), Queue(name, {name: ["key"]})])
    sender, fates = broker.sender([name]), dict[int, Fate]()
    await sender.open()
    try:
        monkeypatch.setattr(AsyncioConnection, "_adapter_emit_data", counted)
        batch = [Outgoing(name, b"x" * 300, str(uuid4()), "t", "key") for _ in range(500)]
        await sender.send(batch, fates.__setitem__)
    finally:
        await sender.close()
    assert [type(fates[n]) for n in range(500)] == [Confirmed] * 500
    sent = [each for each in handed if each > 300]
    assert sum(sent) > 500 * 300
    assert len(sent) <= sum(sent) // PIECE + 1
