"""The broker in memory passes the tests of every transport, and does what a test asks of it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import InvalidSettings
from holdfast.testing.transports import Setting, TransportConformance
from holdfast.testing.transports.setting import read_all, send, send_until_answered
from holdfast.transports import (
    CONFIRMED,
    Connector,
    Fate,
    Fault,
    Limits,
    MemoryBroker,
    Outgoing,
    Rejected,
    Source,
    TooLarge,
    TransportBroken,
    Unroutable,
)


class TestMemory(TransportConformance):
    abilities = frozenset({"cut", "block", "down"})

    def setting(self, name: str) -> Setting:
        self.broker = MemoryBroker()
        self.broker.bind(f"{name}.ex", "key", queue=name)
        self.broker.bind(f"{name}.all", "#", queue=name)
        return Setting(
            self.broker,
            f"{name}.ex",
            "key",
            name,
            nowhere="no",
            everything=f"{name}.all",
            missing=f"{name}.none",
        )

    async def cut(self) -> None:
        self.broker.cut()

    async def block(self) -> None:
        self.broker.block()

    async def unblock(self) -> None:
        self.broker.unblock()

    async def go_down(self) -> None:
        self.broker.go_down()

    async def come_up(self) -> None:
        self.broker.come_up()

    def refused_connector(self, password: str) -> Connector:
        raise NotImplementedError


# --- What a test asks of it -------------------------------------------------------------------------------------------


def given(**settings: Limits) -> tuple[MemoryBroker, Setting]:
    broker = MemoryBroker(**settings)
    broker.bind("ex", "key", queue="q")
    return broker, Setting(broker, "ex", "key", "q", nowhere="no", everything="ex", missing="none")


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    ("fault", "fate"), [(Fault.REFUSE, Rejected), (Fault.NO_ROUTE, Unroutable), (Fault.TOO_LARGE, TooLarge)]
)
async def test_one_message_meets_a_fate(fault: Fault, fate: type[Fate], index: int) -> None:
    broker, setting = given()
    batch = setting.messages(4)
    broker.fail(fault, only=lambda message: message is batch[index])
    sender = broker.sender(["ex"])
    await sender.open()
    told = await send(sender, batch)
    assert isinstance(told.pop(index), fate)
    assert told == {each: CONFIRMED for each in range(4) if each != index}
    assert broker.sent == [each for place, each in enumerate(batch) if place != index]
    assert await send(sender, [batch[index]]) == {0: CONFIRMED}  # once is once


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    ("fault", "told", "stored"),
    [
        (Fault.CUT_BEFORE, lambda i: list(range(i)), lambda i: i),
        (Fault.CUT_AFTER, lambda i: list(range(i)), lambda i: i + 1),
        (Fault.LOSE_CONFIRM, lambda i: [each for each in range(4) if each != i], lambda i: 4),
    ],
)
async def test_one_message_costs_the_connection(
    fault: Fault, told: object, stored: object, index: int
) -> None:
    broker, setting = given()
    batch = setting.messages(4)
    broker.fail(fault, only=lambda message: message is batch[index])
    sender = broker.sender()
    await sender.open()
    assert (await send(sender, batch)).confirmed == told(index)  # type: ignore[operator]
    assert len(broker.sent) == stored(index)  # type: ignore[operator]
    assert sender.broken() is not None
    left = [each for place, each in enumerate(batch) if place not in told(index)]  # type: ignore[operator]
    assert set((await send_until_answered(sender, left)).values()) == {CONFIRMED}
    assert {each.id for each in broker.sent} == {each.id for each in batch}


async def test_a_message_that_is_stored_twice() -> None:
    broker, setting = given()
    broker.fail(Fault.TWICE)
    sender = broker.sender()
    await sender.open()
    assert (await send(sender, setting.messages(2))).confirmed == [0, 1]
    assert len(await read_all(setting)) == 3


async def test_confirms_come_in_the_order_that_is_asked_for() -> None:
    broker, setting = given()
    broker.confirm_in(reversed)
    sender = broker.sender()
    await sender.open()
    assert list(await send(sender, setting.messages(5))) == [4, 3, 2, 1, 0]


def test_one_loop_after_another() -> None:
    """A test that drains twice runs two loops with one broker."""
    broker, setting = given()

    async def turn() -> int:
        sender, receiver = broker.sender(), broker.receiver(Source("q"))
        await sender.open()
        await receiver.open()
        waiting = asyncio.ensure_future(receiver.receive(10))
        await asyncio.sleep(0)
        assert await send(sender, [setting.message()]) == {0: CONFIRMED}
        found = await waiting
        receiver.settle(found)
        await receiver.close()
        await sender.close()
        return len(found)

    assert [asyncio.run(turn()) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("pattern", "key", "is_taken"),
    [
        ("order.placed", "order.placed", True),
        ("order.*", "order.placed", True),
        ("order.*", "order", False),
        ("order.*", "order.placed.twice", False),
        ("order.#", "order", True),
        ("order.#", "order.placed.twice", True),
        ("#.placed", "order.placed", True),
        ("#", "", True),
        ("*", "a.b", False),
        ("a.*.c", "a.b.c", True),
        ("a+b", "aab", False),
    ],
)
async def test_topics(pattern: str, key: str, is_taken: bool) -> None:
    broker = MemoryBroker()
    broker.bind("ex", pattern, queue="q")
    sender = broker.sender()
    await sender.open()
    told = await send(sender, [Outgoing("ex", b"", "1", "t", key)])
    assert (told == {0: CONFIRMED}) == is_taken
    assert len(broker.waiting("q")) == is_taken


async def test_what_is_not_there_is_told() -> None:
    broker = MemoryBroker()
    with pytest.raises(InvalidSettings):
        broker.waiting("none")
    with pytest.raises(TransportBroken) as broken:
        await broker.receiver(Source("none")).open()
    assert broken.value.everyone
