"""Stored, committed, then acknowledged; whatever happens in between, nothing is lost and nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import DeadLetter, Holdfast, InvalidSettings
from holdfast.bodies import codec
from holdfast.errors import StoreUnavailable
from holdfast.inboxes import intake
from holdfast.inboxes.intake import Intake
from holdfast.transports import MemoryBroker
from holdfast.transports.contract import Incoming, Outgoing
from holdfast.transports.memory import MemoryReceiver
from tests.inboxes.conftest import until

pytestmark = pytest.mark.one_postgres


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.bind("shop", "#", queue="q")
    return made


async def send(broker: MemoryBroker, *messages: Outgoing) -> None:
    sender = broker.sender()
    await sender.open()
    await sender.send(messages, lambda *_: None)
    await sender.close()


def out(n: int, id: str | None = None, body: bytes | None = None, **headers: str) -> Outgoing:
    data = b'{"n":%d}' % n if body is None else body
    return Outgoing("shop", data, str(n) if id is None else id, "order.placed", "key", headers)


def event(n: int, source: str, stream: str = "s") -> Outgoing:
    attributes = {
        "specversion": "1.0",
        "id": str(n),
        "source": source,
        "type": "order.placed",
        "partitionkey": stream,
    }
    return out(n, **{f"cloudEvents:{name}": value for name, value in attributes.items()})


def listening(app: Holdfast) -> list[int]:
    """What a handler has seen, in order."""
    seen: list[int] = []

    @app.handler("order.placed")
    async def bill(body: dict[str, Any]) -> None:
        seen.append(body["n"])

    return seen


@pytest.mark.covers("X53", "W104", "X43")
async def test_what_arrives_is_handled_once(app: Holdfast, broker: MemoryBroker) -> None:
    app.inbox("billing", broker, queue="q")
    seen = listening(app)
    await send(broker, *(out(n) for n in (1, 2, 1, 3, 2)))
    async with app.running():
        await until(lambda: len(seen) == 3)
        await send(broker, out(1), out(4))
        await until(lambda: len(seen) == 4)
        await until(lambda: not broker.waiting("q"))
    assert sorted(seen) == [1, 2, 3, 4]


@pytest.mark.covers("X43")
async def test_the_same_id_from_two_sources_is_two_messages(app: Holdfast, broker: MemoryBroker) -> None:
    app.inbox("billing", broker, queue="q")
    seen = listening(app)
    await send(broker, event(1, "/a"), event(1, "/b"), event(1, "/a"), out(1))
    async with app.running():
        await until(lambda: len(seen) == 3)
    assert seen == [1, 1, 1]


async def test_a_stream_keeps_the_order_of_the_broker(app: Holdfast, broker: MemoryBroker) -> None:
    app.inbox("billing", broker, queue="q", stream="{partitionkey|subject}", prefetch=7)
    seen = listening(app)
    await send(broker, *(event(n, "/a", stream=f"s{n % 3}") for n in range(60)))
    async with app.running():
        await until(lambda: len(seen) == 60)
    assert [[n for n in seen if n % 3 == k] for k in range(3)] == [list(range(k, 60, 3)) for k in range(3)]


async def test_one_event_by_two_queues_is_one_message(app: Holdfast, broker: MemoryBroker) -> None:
    broker.bind("shop", "#", queue="r")
    app.inbox("one", broker, queue="q")
    app.inbox("two", broker, queue="r")
    seen = listening(app)
    await send(broker, event(1, "/a"), event(2, "/a"))
    async with app.running():
        await until(lambda: not broker.waiting("q") and not broker.waiting("r") and len(seen) == 2)
        await asyncio.sleep(0.1)
    assert sorted(seen) == [1, 2]


def stored(app: Holdfast) -> int:
    """How many messages are committed, seen by another connection."""
    other = Holdfast(app.url)
    try:
        return len(other.operations.messages.find(limit=1000)) + len(other.operations.dead.list(limit=1000))
    finally:
        other.close()


@pytest.mark.covers("X53")
async def test_nothing_is_acknowledged_before_it_is_committed(
    app: Holdfast, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.inbox("billing", broker, queue="q", prefetch=10)
    seen: list[tuple[int, int]] = []
    settle = MemoryReceiver.settle

    def looking(self: MemoryReceiver, batch: Sequence[Incoming]) -> None:
        seen.append((sum(count for _, count in seen[-1:]) + len(batch), stored(app)))
        settle(self, batch)

    monkeypatch.setattr(MemoryReceiver, "settle", looking)
    await send(broker, *(out(n) for n in range(9)), out(9, body=b"\xff"))
    async with app.running():
        await until(lambda: seen)
    assert all(have >= settled for settled, have in seen)


@pytest.mark.covers("X53", "X43")
async def test_a_lost_acknowledgement_is_no_second_message(
    app: Holdfast, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost between the commit and the acknowledgement, each of the first five times."""
    app.inbox("billing", broker, queue="q", stream="{partitionkey}")
    seen = listening(app)
    settle, cuts = MemoryReceiver.settle, [0]

    def cutting(self: MemoryReceiver, batch: Sequence[Incoming]) -> None:
        cuts[0] += 1
        if cuts[0] <= 5:
            broker.cut()
        else:
            settle(self, batch)

    monkeypatch.setattr(MemoryReceiver, "settle", cutting)
    monkeypatch.setattr(intake, "pause", lambda failures, roll: 0.01)
    await send(broker, *(event(n, "/a") for n in range(20)))
    async with app.running():
        await until(lambda: cuts[0] > 5 and not broker.waiting("q") and len(seen) == 20)
    assert seen == list(range(20))


@pytest.mark.covers("V30", "V31", "X53")
async def test_bytes_that_cannot_be_read_are_a_dead_letter_and_told(
    app: Holdfast, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    tickets: list[DeadLetter] = []

    @app.on_dead_letter
    async def ticket(letter: DeadLetter) -> None:
        tickets.append(letter)

    app.inbox("billing", broker, queue="q")
    seen = listening(app)
    with caplog.at_level(logging.ERROR):
        await send(broker, out(1), out(2, "bad", b"\xff"), out(3))
        async with app.running():
            await until(lambda: len(seen) == 2 and tickets)
    (letter,) = app.operations.dead.list()
    assert (letter.queue, letter.attempts, letter.type) == ("inbox/billing", 0, "order.placed")
    assert tickets[0].id == letter.id
    assert tickets[0].data[codec.BASE64] == "/w=="
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "inbox.dead_letter"]
    assert (record.request_id, record.reason) == ("bad", 5)  # type: ignore[attr-defined]


@pytest.mark.covers("V29")
async def test_a_dead_letter_of_the_broker_comes_back_through_its_inbox(
    app: Holdfast, broker: MemoryBroker
) -> None:
    app.inbox("graveyard", broker, queue="q", dead_letters=True)
    seen = listening(app)
    await send(broker, out(7))
    async with app.running():
        await until(lambda: app.operations.dead.list())
        (letter,) = app.operations.dead.list()
        assert letter.error == "The broker had given it up: unknown"
        assert seen == []
        app.operations.dead.redrive(letter.id)
        await until(lambda: seen == [7])
        assert not app.operations.dead.list()


async def test_a_redriven_letter_is_read_again_and_may_die_again(app: Holdfast, broker: MemoryBroker) -> None:
    app.inbox("billing", broker, queue="q")
    seen = listening(app)
    await send(broker, out(1, "bad", b"{"))
    async with app.running():
        await until(lambda: app.operations.dead.list())
        (letter,) = app.operations.dead.list()
        app.operations.dead.redrive(letter.id)
        await until(lambda: app.operations.dead.list())
        ((_, shown),) = app.operations.dead.show(letter.id)
        assert len(shown.deaths) == 2
        content = codec.read_plain(shown.body)
        app.operations.dead.edit(letter.id, json.dumps({**content, codec.BASE64: "eyJuIjo1fQ=="}))
        app.operations.dead.redrive(letter.id)
        await until(lambda: seen == [5])
        await send(broker, out(6, "bad"), out(8))
        await until(lambda: len(seen) == 2)
    assert seen == [5, 8], "the sender's id is known"


async def test_a_paused_inbox_stops_and_a_paused_handler_does_not(
    app: Holdfast, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "LOOKS_EVERY", 0.05)
    app.inbox("billing", broker, queue="q")
    seen = listening(app)

    @app.handler("order.placed")
    async def slow(body: dict[str, Any]) -> None: ...

    app.prepare()
    app.operations.queues.pause("slow")
    app.operations.queues.pause("inbox/billing")
    await send(broker, out(1))
    async with app.running():
        await asyncio.sleep(0.3)
        assert (seen, len(broker.waiting("q"))) == ([], 1)
        app.operations.queues.resume("inbox/billing")
        await until(lambda: seen == [1])


async def test_a_backlog_stops_it_until_it_is_handled(
    app: Holdfast, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again: what was held goes on each time."""
    monkeypatch.setattr(intake, "LOOKS_EVERY", 0.03)
    app.inbox("billing", broker, queue="q", backlog=5, prefetch=5)
    go, seen = asyncio.Event(), []

    @app.handler("order.placed", concurrency=1)
    async def bill(body: dict[str, Any]) -> None:
        await go.wait()
        seen.append(body["n"])

    async with app.running():
        for turn in range(5):
            go.clear()
            await send(broker, *(out(turn * 20 + n) for n in range(20)))
            await asyncio.sleep(0.2)
            assert broker.waiting("q"), "it stopped"
            go.set()
            await until(lambda turn=turn: len(seen) == turn * 20 + 20)
    assert sorted(seen) == list(range(100))


class Absent:
    """A store that is away as long as a test says; else the real one."""

    def __init__(self, store: Any) -> None:
        self.store, self.is_away = store, False

    async def arun(self, plan: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("away")
        return await self.store.arun(plan)


async def test_while_the_database_is_away_nothing_is_acknowledged_and_all_is_given_back_once(
    app: Holdfast, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "AWAY", 0.2)
    monkeypatch.setattr(intake, "STORE_PAUSES", (0.02,))
    app.prepare()
    inbox = app.inbox("billing", broker, queue="q")
    store, stopping = Absent(app.store), asyncio.Event()
    stops: list[int] = []
    works = Intake(inbox, store, app.settings, None, app.clock)  # type: ignore[arg-type]
    stop = works.receiver.stop

    async def counting() -> None:
        stops.append(1)
        await stop()

    works.receiver.stop = counting  # type: ignore[method-assign]
    store.is_away = True
    await send(broker, *(out(n) for n in range(10)))
    task = asyncio.create_task(works.run(stopping))
    await until(lambda: len(broker.waiting("q")) == 10 and stops)
    await asyncio.sleep(0.3)
    assert (len(stops), len(broker.waiting("q")), stored(app)) == (1, 10, 0)
    store.is_away = False
    await until(lambda: stored(app) == 10)
    await until(lambda: not broker.waiting("q"))
    stopping.set()
    await task
    assert len(stops) == 1


@pytest.mark.covers("X53")
async def test_what_was_read_ahead_waits_for_what_came_before_it(
    app: Holdfast, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch is read while one is stored. If that cannot be stored, both go back, and the order is kept."""
    monkeypatch.setattr(intake, "AWAY", 0.1)
    monkeypatch.setattr(intake, "BATCH", 5)
    monkeypatch.setattr(intake, "SLICE", 5)
    monkeypatch.setattr(intake, "STORE_PAUSES", (0.02,))
    seen = listening(app)
    inbox = app.inbox("billing", broker, queue="q", stream="{partitionkey}")
    app.prepare()
    store, stopping = Absent(app.store), asyncio.Event()
    works = Intake(inbox, store, app.settings, None, app.clock)  # type: ignore[arg-type]
    ahead: list[int] = []
    gave_back: list[int] = []
    read_ahead, stop = works._read_ahead, works.receiver.stop

    async def stopped() -> None:
        gave_back.append(1)
        await stop()

    works.receiver.stop = stopped  # type: ignore[method-assign]

    async def counting(storing: Any, found: list[Any]) -> None:
        await read_ahead(storing, found)
        ahead.append(len(found))

    monkeypatch.setattr(works, "_read_ahead", counting)
    task = asyncio.create_task(works.run(stopping))
    for turn in range(3):
        store.is_away = True
        await send(broker, *(event(n, "/a") for n in range(turn * 20, turn * 20 + 20)))
        await until(lambda turn=turn: len(gave_back) == turn + 1)
        store.is_away = False
        await until(lambda turn=turn: stored(app) == turn * 20 + 20)
    await until(lambda: not broker.waiting("q"))
    stopping.set()
    await task
    assert max(ahead) == 5
    async with app.running():
        await until(lambda: len(seen) == 60)
    assert seen == list(range(60))


@pytest.mark.covers("X53")
async def test_a_message_that_the_database_refuses_is_found_among_others(
    app: Holdfast, broker: MemoryBroker
) -> None:
    """Another message has its id: the others are stored, in their order, and this one is a dead letter."""
    app.prepare()
    inbox = app.inbox("billing", broker, queue="q", stream="{partitionkey}")
    culprit = Intake(inbox, app.store, app.settings, None, app.clock).reader.message(
        Incoming(b"{}", event(13, "/a").headers, receipt=None)
    )
    app.publish("order.placed", {}, id=culprit.id)
    await send(broker, *(event(n, "/a") for n in range(40)))
    seen = listening(app)
    async with app.running():
        await until(lambda: len(seen) >= 40 or (len(seen) >= 39 and app.operations.dead.list()))
    (letter,) = app.operations.dead.list()
    assert letter.id == culprit.id
    assert "IdTaken" in (letter.error or "")


def test_an_inbox_has_one_name(app: Holdfast, broker: MemoryBroker) -> None:
    app.inbox("billing", broker, queue="q")
    with pytest.raises(InvalidSettings, match="already an inbox"):
        app.inbox("billing", broker, queue="r")
