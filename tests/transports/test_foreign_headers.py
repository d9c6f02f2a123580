"""Headers that only strangers write: every kind of value that AMQP has, and what no client of ours could write."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pika
import pytest
from pika import exceptions, frame, spec

from holdfast import Context, Holdfast
from holdfast.transports import RabbitMQ
from holdfast.transports.contract import Source
from holdfast.transports.rabbitmq import frames
from tests.inboxes.conftest import until


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def field(value: bytes, name: bytes = b"a") -> bytes:
    return bytes([len(name)]) + name + value


def nested(kind: bytes, depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = kind + long(field(value) if kind == b"F" else value)
    return field(value)


TABLES: dict[str, tuple[bytes, object]] = {
    "boolean": (field(b"t\x01"), True),
    "8 bits": (field(b"b\xff"), -1),
    "8 bits, unsigned": (field(b"B\xff"), 255),
    "16 bits": (field(b"s\xff\xff"), -1),
    "16 bits, unsigned": (field(b"u\xff\xff"), 65535),
    "32 bits": (field(b"I" + struct.pack(">i", -7)), -7),
    "32 bits, unsigned": (field(b"i" + struct.pack(">I", 2**31)), 2**31),
    "64 bits": (field(b"l" + struct.pack(">q", 2**40)), 2**40),
    "float": (field(b"f" + struct.pack(">f", 0.5)), 0.5),
    "double": (field(b"d" + struct.pack(">d", 2.75)), 2.75),
    "decimal": (field(b"D\x02" + struct.pack(">i", 250)), Decimal("2.50")),
    "text": (field(b"S" + long("né".encode())), "né"),
    "text that is none": (field(b"S" + long(b"\xff")), b"\xff"),
    "bytes": (field(b"x" + long(b"\x00\xff")), b"\x00\xff"),
    "nothing": (field(b"V"), None),
    "time": (field(b"T" + struct.pack(">Q", 1_700_000_000)), datetime.fromtimestamp(1_700_000_000, UTC)),
    "time after the year 9999": (field(b"T" + struct.pack(">Q", 2**62)), 2**62),
    "list": (field(b"A" + long(b"t\x01" + b"S" + long(b"x"))), [True, "x"]),
    "table": (field(b"F" + long(field(b"t\x00", b"b"))), {"b": False}),
}
ODD = {
    "tables, 3,000 deep": nested(b"F", 3000),
    "lists, 3,000 deep": nested(b"A", 3000),
    "a name that is no text": field(b"t\x01", b"\xff\xfe"),
}


class Raw(pika.BasicProperties):  # type: ignore[misc]  # pika ships no types
    """Properties with headers as bytes."""

    def __init__(self, table: bytes, message_id: bytes = b"1") -> None:
        super().__init__()
        self.table, self.id = table, message_id

    def encode(self) -> list[bytes]:
        flags = pika.BasicProperties.FLAG_HEADERS | pika.BasicProperties.FLAG_MESSAGE_ID
        return [struct.pack(">H", flags), long(self.table), bytes([len(self.id)]), self.id]


class Fed(frames.Connection):
    """A connection that is given bytes, and keeps the frames that pika would get."""

    def __init__(self) -> None:
        self._frame_buffer, self._deliveries, self.bytes_received = b"", {}, 0
        self.frames: list[Any] = []
        self.came: list[frames.Delivery] = []

    def _process_frame(self, frame_value: Any) -> None:
        self.frames.append(frame_value)


@pytest.fixture
def queue(rabbitmq: str) -> Iterator[Any]:
    """A function that publishes to a queue of its own; its name is `queue.name`."""
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq))
    channel = connection.channel()
    name = f"foreign-{uuid4().hex[:8]}"
    channel.queue_declare(
        name,
        durable=True,
        arguments={"x-queue-type": "quorum"}
        | ({"x-delivery-limit": -1} if connection._impl.server_properties["version"] >= "4" else {}),
    )
    channel.confirm_delivery()

    def publish(properties: object, body: bytes = b"{}", key: str = name) -> None:
        channel.basic_publish("", key, body, properties)

    publish.name = name  # type: ignore[attr-defined]
    yield publish
    channel.queue_delete(name)
    connection.close()


@pytest.mark.parametrize("what", TABLES)
def test_every_kind_of_value(what: str) -> None:
    raw, value = TABLES[what]
    found = frames.table(raw)["a"]
    assert (found, type(found)) == (value, type(value))


GIVEN: dict[str, Any] = {
    "content_type": "text/plain", "content_encoding": "gzip", "headers": {"a": "x", "b": {"c": ["d"]}},
    "delivery_mode": 2, "priority": 3, "correlation_id": "c", "reply_to": "r", "expiration": "9",
    "message_id": "m", "timestamp": 5, "type": "t", "user_id": "u", "app_id": "a", "cluster_id": "l",
}  # fmt: skip


@pytest.mark.parametrize(
    "left_out", [(), *((name,) for name in GIVEN), ("content_type", "content_encoding"), tuple(GIVEN)]
)
def test_properties_are_those_that_pika_finds(left_out: tuple[str, ...]) -> None:
    """All of them, and each without one: in a delivery, and in what pika gets (a returned message)."""
    given = pika.BasicProperties(**{name: each for name, each in GIVEN.items() if name not in left_out})
    raw = frame.Header(7, 300, given).marshal()
    _, one = frame.decode_frame(raw)
    fed = Fed()
    fed._on_data_available(raw)
    (other,) = fed.frames
    assert (other.channel_number, other.body_size, vars(other.properties)) == (7, 300, vars(one.properties))
    wanted = (given.content_type, given.headers or {}, given.message_id, given.timestamp, given.type)
    assert frames.properties(raw[19:-1]) == wanted
    for length in range(len(raw) - 20):  # no broker sends such; an exception would end the connection
        frames.properties(raw[19 : 19 + length])


def test_frames_are_found_wherever_the_bytes_are_cut() -> None:
    """Deliveries of one channel are put together here; pika gets all else, as it would find it."""
    header = pika.BasicProperties(content_type="a/b", message_id="1", type="t", headers={"a": "x"})

    def delivered(channel: int, number: int, pieces: list[bytes], redelivered: bool = False) -> bytes:
        method = spec.Basic.Deliver("tag", number, redelivered, "exchange", "key.\xe9")
        parts = [frame.Method(channel, method), frame.Header(channel, sum(map(len, pieces)), header)]
        return b"".join(each.marshal() for each in [*parts, *(frame.Body(channel, each) for each in pieces)])

    raw = b"".join(
        [
            frame.Heartbeat().marshal(),
            delivered(3, 1, [b"whole"]),
            frame.Method(3, spec.Basic.Ack(5, True)).marshal(),
            delivered(3, 2, [b"in ", b"two"], redelivered=True),
            delivered(4, 9, [b"of another channel"]),
            delivered(3, 3, []),
            frame.Method(3, spec.Channel.Close(404, "NOT_FOUND", 60, 40)).marshal(),
        ]
    )
    wanted, rest = [], raw
    while rest:
        length, one = frame.decode_frame(rest)
        rest = rest[length:]
        if one.channel_number != 3 or getattr(one, "method", None).__class__ in (
            spec.Basic.Ack,
            spec.Channel.Close,
        ):
            wanted.append(repr(vars(one)))
    for size in range(1, len(raw) + 1):
        fed = Fed()
        fed.deliver(3, fed.came.append)
        for begin in range(0, len(raw), size):
            fed._on_data_available(raw[begin : begin + size])
        assert [(each.number, each.body, each.redelivered) for each in fed.came] == [
            (1, b"whole", False), (2, b"in two", True), (3, b"", False),
        ]  # fmt: skip
        about = ("exchange", "key.\xe9", ("a/b", {"a": "x"}, "1", None, "t"))
        assert [(each.to, each.key, each.properties) for each in fed.came] == [about] * 3
        assert [repr(vars(each)) for each in fed.frames] == wanted
        assert (fed.bytes_received, fed._frame_buffer) == (len(raw), b"")


def test_frames_that_break_the_protocol_end_the_connection() -> None:
    for raw, why in (
        (frame.Heartbeat().marshal()[:-1] + b"x", exceptions.InvalidFrameError),
        (frame.Method(3, spec.Basic.Deliver("", 1, False, "", "")).marshal()
         + frame.Header(3, 2, pika.BasicProperties()).marshal()
         + frame.Body(3, b"more").marshal(), exceptions.BodyTooLongError),
    ):  # fmt: skip
        fed = Fed()
        fed.deliver(3, fed.came.append)
        with pytest.raises(why):
            fed._on_data_available(raw)


def test_whatever_the_bytes_are_a_table_comes_of_them() -> None:
    """No broker sends such tables; an exception would end the connection."""
    dice = random.Random(5)
    whole = b"".join(raw for raw, _ in TABLES.values())
    for length in range(len(whole)):
        frames.table(whole[:length])
    for _ in range(20_000):
        changed = bytearray(whole)
        for _ in range(dice.randint(1, 5)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        frames.table(bytes(changed))


async def test_no_header_ends_the_connection(rabbitmq: str, queue: Any) -> None:
    """pika's own decoder fails at some of these, and RabbitMQ would deliver the message again for ever."""
    tables = {what: raw for what, (raw, _) in TABLES.items()} | ODD
    for raw in tables.values():
        queue(Raw(raw))
    receiver = RabbitMQ(rabbitmq).receiver(Source(queue.name))
    await receiver.open()
    found: list[Any] = []
    while len(found) < len(tables):
        found += await receiver.receive(100)
    await receiver.close()
    assert [each.headers["a"] for each in found[: len(TABLES)]] == [value for _, value in TABLES.values()]
    assert [list(each.headers) for each in found[len(TABLES) :]] == [["a"], ["a"], ["\\xff\\xfe"]]


@pytest.mark.one_postgres
async def test_they_are_messages_or_dead_letters_and_nothing_waits_behind_them(
    url: str, rabbitmq: str, queue: Any
) -> None:
    """Two ids that are no text are two messages. What JSON can hold is a header of the message."""
    tables = [raw for raw, _ in TABLES.values()] + list(ODD.values())
    app = Holdfast(url)
    seen: list[dict[str, object]] = []

    @app.handler("foreign.thing")
    async def take(body: dict[str, Any] | None, ctx: Context) -> None:
        seen.append({name: value for name, value in ctx.headers.items() if not name.startswith("holdfast-")})

    app.inbox("foreign", RabbitMQ(rabbitmq), queue=queue.name)
    for n, raw in enumerate(tables):
        queue(Raw(raw, b"%d" % n), b"{")
        queue(Typed(raw, b"m%d" % n))
    for id in (b"\xff", b"\xfe"):
        queue(Typed(b"", id))
    async with app.running():
        await until(lambda: len(seen) == len(tables) + 2)
        await until(lambda: len(app.operations.dead.list()) == len(tables))
    app.close()
    kept = [each["a"] for each in seen if "a" in each]
    wanted = [value for _, value in TABLES.values() if isinstance(value, str | bool | int | float)]
    assert sorted(map(repr, kept)) == sorted(map(repr, wanted))


class Typed(Raw):
    """With a type, too."""

    def encode(self) -> list[bytes]:
        flags, *rest = super().encode()
        kind = b"foreign.thing"
        both = struct.unpack(">H", flags)[0] | pika.BasicProperties.FLAG_TYPE
        return [struct.pack(">H", both), *rest, bytes([len(kind)]), kind]
