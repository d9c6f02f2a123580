"""What has gone wrong between other programs and RabbitMQ, tried with ours on the real broker."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import pytest

from holdfast.testing.transports.setting import Setting, read_all, receive, send, send_until_answered, until
from holdfast.transports import (
    CONFIRMED,
    DeadLetters,
    Exchange,
    Outgoing,
    Queue,
    RabbitMQ,
    Rejected,
    Secret,
    Source,
    TooLarge,
    TransportBroken,
    Unroutable,
)
from tests.hostile import BROKEN_TEXTS, TEXTS
from tests.transports.wire import Wire

MIB = 1024 * 1024
LONG = pytest.mark.faults("storms")


def setting(url: str, **settings: object) -> Setting:
    name = f"hazard-{uuid4().hex[:8]}"
    broker = RabbitMQ(
        url,
        declare=[
            Exchange(f"{name}.ex"),
            Exchange(f"{name}.all"),
            Queue(name, {f"{name}.ex": ["key"], f"{name}.all": ["#"]}),
        ],
        **settings,  # type: ignore[arg-type]
    )
    return Setting(broker, f"{name}.ex", "key", name, "no", f"{name}.all", f"{name}.none")


# --- Fates ------------------------------------------------------------------------------------------------------------


async def test_every_fate_at_every_index_of_a_batch(rabbitmq: str) -> None:
    """5 messages, one of them bad in each of four ways, at each index."""
    full = f"full-{uuid4().hex[:8]}"
    given = setting(rabbitmq, body_bytes=2 * MIB)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    broker = RabbitMQ(
        rabbitmq, declare=[*given.connector.declare, Queue(full, arguments=arguments)], body_bytes=2 * MIB
    )
    sender = broker.sender([given.to])
    await sender.open()
    while await send(sender, [given.message(to="", key=full)]) == {0: CONFIRMED}:
        pass  # until it is full
    bad = {
        Unroutable: given.message(key=given.nowhere),
        Rejected: given.message(to="", key=full),
        TooLarge: given.message(bytes(2 * MIB + 1)),
    }
    for fate, message in bad.items():
        for index in range(5):
            batch = given.messages(5)
            batch[index] = message
            told = await send(sender, batch)
            assert isinstance(told.pop(index), fate), (fate, index)
            assert told == {each: CONFIRMED for each in range(5) if each != index}
    for index in range(5):
        batch = given.messages(5)
        batch[index] = given.message(to=given.missing)
        fates = await send_until_answered(sender, batch)
        assert isinstance(fates.pop(index), Unroutable)
        assert fates == {each: CONFIRMED for each in range(5) if each != index}
    await sender.close()


async def test_one_of_500_to_a_missing_exchange(rabbitmq: str) -> None:
    given = setting(rabbitmq)
    batch = given.messages(500)
    batch[321] = given.message(to=given.missing)
    sender = given.connector.sender([given.to])
    await sender.open()
    fates = await send_until_answered(sender, batch, rounds=4)
    await sender.close()
    assert isinstance(fates.pop(321), Unroutable)
    assert list(fates.values()) == [CONFIRMED] * 499
    arrived = list(dict.fromkeys(each.id for each in await read_all(given)))
    assert arrived == [each.id for index, each in enumerate(batch) if index != 321]


async def test_one_that_only_the_broker_finds_too_large(rabbitmq: str, rabbitmq_version: str) -> None:
    """RabbitMQ 4 takes 16 MiB. It closes the channel over more, for all that were under way."""
    given = setting(rabbitmq, body_bytes=64 * MIB)
    batch = given.messages(50)
    batch[20] = given.message(bytes(17 * MIB))
    sender = given.connector.sender()
    await sender.open()
    fates = await send_until_answered(sender, batch, rounds=4)
    await sender.close()
    if rabbitmq_version == "new":
        assert isinstance(fates[20], TooLarge)
    else:
        assert fates[20] == CONFIRMED
    assert [fate for index, fate in fates.items() if index != 20] == [CONFIRMED] * 49


async def test_two_batches_under_way_when_the_channel_is_closed(rabbitmq: str) -> None:
    given = setting(rabbitmq)
    first, second = given.messages(40), given.messages(40)
    first[5] = given.message(to=given.missing)
    sender = given.connector.sender([given.to])
    await sender.open()
    await asyncio.gather(send(sender, first), send(sender, second))
    fates = await send_until_answered(sender, [*first, *second])
    await sender.close()
    assert [index for index, fate in fates.items() if fate != CONFIRMED] == [5]


async def test_an_exchange_that_is_deleted_blames_nobody(rabbitmq: str) -> None:
    given = setting(rabbitmq)
    sender = RabbitMQ(rabbitmq).sender([given.to])
    declaring = given.connector.sender()
    await declaring.open()
    await sender.open()
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:
        connection.channel().exchange_delete(given.to)
    assert await send(sender, given.messages(5)) == {}
    broken = sender.broken()
    assert broken is not None
    assert broken.everyone
    assert given.to in broken.why
    with pytest.raises(TransportBroken):
        await sender.open()
    await declaring.open()  # declares it again
    await sender.open()
    assert len((await send(sender, given.messages(5))).confirmed) == 5
    await sender.close()
    await declaring.close()


# --- Connections ------------------------------------------------------------------------------------------------------


async def test_confirms_that_never_come_end_in_time_and_are_unknown(wire: Wire) -> None:
    given = setting(wire.url, confirm_seconds=0.5)
    batch = given.messages(20)
    sender = given.connector.sender()
    await sender.open()
    wire.swallow_answers()
    assert await send(sender, batch) == {}
    broken = sender.broken()
    assert broken is not None
    assert "confirmed" in broken.why
    wire.swallow_answers(False)
    await sender.open()
    assert len((await send(sender, batch)).confirmed) == 20
    await sender.close()
    ids = [each.id for each in await read_all(given)]
    assert len(ids) == 40  # the first ones had arrived: the same ids twice
    assert set(ids) == {each.id for each in batch}


@pytest.mark.parametrize(
    "cuts",
    [pytest.param(15, id="15"), pytest.param(500, id="500", marks=LONG)],
)
@pytest.mark.timeout(600)
async def test_cut_between_publish_and_confirm(wire: Wire, cuts: int) -> None:
    """At a random byte of a batch: nothing is lost, and what comes twice has the same id, in the same order."""
    given = setting(wire.url)
    dice = random.Random(7)
    sender = given.connector.sender([given.to])
    sent: list[Outgoing] = []
    await sender.open()
    for _ in range(cuts):
        batch = given.messages(10)
        wire.cut_before_the_answer_to(dice.randint(1, 1300))
        fates = await send_until_answered(sender, batch)
        assert list(fates.values()) == [CONFIRMED] * 10
        sent += batch
    await sender.close()
    ids = [each.id for each in await read_all(given)]
    assert list(dict.fromkeys(ids)) == [each.id for each in sent]
    assert wire.cuts >= cuts // 2
    print(f"{wire.cuts} cuts: {len(sent)} sent, lost 0, {len(ids) - len(sent)} came twice with the same id")


@pytest.mark.parametrize("count", [1, 8, 20, 300, 400, 450, 480, 500, 530])
async def test_a_line_cut_while_opening_is_no_refusal_of_the_password(wire: Wire, count: int) -> None:
    """pika takes it for one. It would open the breaker of all processes."""
    given = setting(wire.url, connect_seconds=2)
    sender = given.connector.sender()
    wire.cut_before_the_answer_to(count, keep_answers=True)
    try:
        await sender.open()
    except TransportBroken as broken:
        assert not broken.everyone, broken  # noqa: PT017 - that it opens is right, too
    await sender.close()


async def test_a_silent_broker_does_not_keep_open_or_close_waiting(wire: Wire) -> None:
    given = setting(wire.url, connect_seconds=0.5)
    sender = given.connector.sender()
    wire.swallow_answers()
    with pytest.raises(TransportBroken, match="did not answer"):
        await sender.open()
    wire.swallow_answers(False)
    await sender.open()
    wire.swallow_answers()
    async with asyncio.timeout(10):
        await sender.close()
    wire.swallow_answers(False)


async def test_opening_can_be_given_up(wire: Wire) -> None:
    sender = setting(wire.url).connector.sender()
    wire.swallow_answers()
    task = asyncio.ensure_future(sender.open())
    await asyncio.sleep(0.05)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert sender.broken() is not None
    wire.swallow_answers(False)
    await sender.open()
    assert sender.broken() is None
    await sender.close()


# --- Receiving --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("V27", "V28", "V29")
async def test_what_the_broker_gives_up_comes_to_the_dead_letter_queue_with_its_reason(rabbitmq: str) -> None:
    name = f"grading-{uuid4().hex[:8]}"
    broker = RabbitMQ(
        rabbitmq,
        declare=[
            Exchange(f"{name}.exchange"),
            Queue(
                f"{name}.request",
                {f"{name}.exchange": ["grading.request"]},
                dead_letters=DeadLetters(f"{name}.dlx", f"{name}.dlq"),
            ),
        ],
    )
    sender, dead = broker.sender([f"{name}.exchange"]), broker.receiver(Source(f"{name}.dlq"))
    await sender.open()
    message = Outgoing(f"{name}.exchange", b'{"id": 1}', str(uuid4()), "grading.request", "grading.request")
    assert await send(sender, [message]) == {0: CONFIRMED}
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:  # a grader that refuses
        channel = connection.channel()
        for _ in range(100):
            method, _, _ = channel.basic_get(f"{name}.request")
            if method is not None:
                channel.basic_reject(method.delivery_tag, requeue=False)
                break
            await asyncio.sleep(0.05)
    await dead.open()
    (found,) = await receive(dead, 1)
    assert (found.death, found.key, found.to) == ("rejected", f"{name}.dlq", f"{name}.dlx")
    assert (found.id, found.body) == (message.id, message.body)
    await dead.close()
    await sender.close()


async def test_two_receivers_of_an_ordered_source_take_turns(rabbitmq: str) -> None:
    given = setting(rabbitmq)
    name = f"{given.queue}.ordered"
    source = Source(name, {given.to: ["key"]}, ordered=True)
    declaring = given.connector.sender()
    await declaring.open()
    first, second = (given.connector.receiver(source) for _ in range(2))
    await first.open()
    await second.open()
    assert len((await send(declaring, given.messages(6))).confirmed) == 6
    waiting = asyncio.ensure_future(receive(second, 4))
    found = await receive(first, 6)
    first.settle(found[:2])
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await first.close()
    assert [each.id for each in await waiting] == [each.id for each in found[2:]]
    await second.close()
    await declaring.close()


async def test_a_queue_that_is_deleted_is_told(rabbitmq: str) -> None:
    given = setting(rabbitmq)
    receiver = given.connector.receiver(Source(given.queue))
    await receiver.open()
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:
        connection.channel().queue_delete(given.queue)
    await until(lambda: receiver.broken() is not None)
    with pytest.raises(TransportBroken):
        await receiver.receive(1)
    await receiver.close()


async def test_a_queue_that_exists_otherwise_is_told_and_one_without_our_limit_will_do(rabbitmq: str) -> None:
    name = f"old-{uuid4().hex[:8]}"
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_declare(f"{name}.classic", durable=True)
    receiver = RabbitMQ(rabbitmq).receiver(Source(name))
    await receiver.open()
    await receiver.close()
    classic = Source(f"{name}.classic")
    with pytest.raises(TransportBroken, match="other settings") as broken:
        await RabbitMQ(rabbitmq).receiver(classic).open()
    assert broken.value.everyone
    receiver = RabbitMQ(rabbitmq, may_declare=False).receiver(classic)
    await receiver.open()
    await receiver.close()
    with pytest.raises(TransportBroken, match="missing"):
        await RabbitMQ(rabbitmq, may_declare=False).receiver(Source(f"{name}.none")).open()


# --- Hostile values ---------------------------------------------------------------------------------------------------


def hostile_values() -> list[str]:
    """500: texts that have hurt somebody, each control character in each place, random ones, and broken ones."""
    dice = random.Random(1)
    found = [text for text in TEXTS.values() if len(text) < 20_000]
    found += [
        f"{before}{chr(code)}{after}"
        for code in [*range(32), 127, *range(128, 160)]
        for before, after in PLACES
    ]
    found += [*BROKEN_TEXTS.values(), *(f"x{text}" for text in BROKEN_TEXTS.values())]
    signs = [chr(code) for code in range(1, 0x110000, 97) if not 0xD800 <= code <= 0xDFFF]
    while len(found) < 500:
        found.append("".join(dice.choices(signs, k=20)))
    return found[:500]


PLACES = (("", ""), ("a", "b"), ("", "b"), ("a", ""))


async def test_500_hostile_header_values_are_equal_at_the_other_end_or_refused(rabbitmq: str) -> None:
    values = hostile_values()
    harmless = [f"value {n}" for n in range(500)]
    given = setting(rabbitmq)
    batch = [given.message(headers={"x-value": value}) for value in [*values, *harmless]]
    sender = given.connector.sender()
    await sender.open()
    fates = await send_until_answered(sender, batch)
    await sender.close()
    sent = [batch[index].headers["x-value"] for index in sorted(fates) if fates[index] == CONFIRMED]
    assert [each.headers["x-value"] for each in await read_all(given)] == sent
    assert set(harmless) <= set(sent)
    refused = [value for value in values if value not in set(sent)]
    assert all(any("\ud800" <= sign <= "\udfff" for sign in value) for value in refused)


async def test_200_hostile_names_are_equal_at_the_other_end_or_refused(rabbitmq: str) -> None:
    """As routing keys, types, ids and names of headers."""
    names = [text for text in hostile_values() if text][:150]
    names += [
        "x" * 255,
        "x" * 256,
        "é" * 127,
        "é" * 128,
        "CC",
        "BCC",
        "cc",
        "x-death",
        "x-delay",
        "content-type",
    ] * 5
    harmless = [f"name-{n}" for n in range(200)]
    given = setting(rabbitmq)
    batch = [
        Outgoing(given.everything, b"{}", name, name, name, {name: "value"}) for name in [*names, *harmless]
    ]
    sender = given.connector.sender()
    await sender.open()
    fates = await send_until_answered(sender, batch, rounds=60)
    await sender.close()
    sent = [batch[index].id for index in sorted(fates) if fates[index] == CONFIRMED]
    found = await read_all(given)
    arrived = [(each.id, each.type, each.key, each.headers.get(each.id or "")) for each in found]
    assert list(dict.fromkeys(arrived)) == list(dict.fromkeys((name, name, name, "value") for name in sent))
    assert set(harmless) <= set(sent)
    assert {"CC", "BCC", "x" * 256, "é" * 128} & set(sent) == set()
    assert all(isinstance(fate, Rejected) for fate in fates.values() if fate != CONFIRMED)


# --- Secrets ----------------------------------------------------------------------------------------------------------


async def test_a_canary_is_found_nowhere(
    rabbitmq: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In no log, at any level, of ours or of pika; in no error; in nothing that is printed."""
    canary = f"canary-{uuid4().hex}"
    monkeypatch.setenv("RABBIT_PASSWORD", canary)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="pika")
    port = urlsplit(rabbitmq).port
    texts: list[str] = []
    for broker in (
        RabbitMQ(f"amqp://guest@127.0.0.1:{port}/", password=Secret("RABBIT_PASSWORD")),
        RabbitMQ(f"amqp://guest:{canary}@127.0.0.1:{port}/"),
        RabbitMQ(f"amqp://{uuid4().hex}:{canary}@127.0.0.1:1/"),
        RabbitMQ(f"amqps://guest:{canary}@127.0.0.1:{port}/", connect_seconds=2),
    ):
        for transport in (broker.sender(), broker.receiver(Source("q"))):
            with pytest.raises(TransportBroken) as broken:
                await transport.open()
            texts += [
                str(broken.value),
                repr(broken.value),
                repr(transport),
                repr(transport.broken()),
                repr(broker),
            ]
    out, err = capfd.readouterr()
    texts += [out, err, caplog.text, *(repr(record.args) for record in caplog.records)]
    assert len(caplog.records) > 20
    assert [text for text in texts if canary in text] == []
