"""The relay on the broker in memory: what is sent, when it counts as sent, and what an outage costs."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, inboxes
from holdfast.bodies.keys import new_key
from holdfast.errors import InvalidMessage, InvalidSettings
from holdfast.model.message import Flag, Reason
from holdfast.rules import reconnect
from holdfast.transports import CONFIRMED, Fault, Limits, MemoryBroker, TransportBroken
from holdfast.transports.contract import Fate, Outgoing, Rejected, Sent, Unknown
from holdfast.transports.destination import INBOX, INBOX_ID, INBOX_SOURCE, SENDING
from holdfast.transports.memory import MemorySender
from tests.worker.lab import Lab, auntil, settled


def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.bind("shop.events", "order.#", queue="billing")
    return made


def declare(app: Holdfast, memory: MemoryBroker, **options: Any) -> None:
    app.destination("orders", memory, **{"types": ["order.*"], "to": "shop.events", **options})


def publish(app: Holdfast, streams: list[str], count: int, start: int = 0) -> None:
    app.publish_many(
        app.message("order.placed", {"n": n}, stream=stream, subject=f"{stream}{n}")
        for n in range(start, start + count)
        for stream in streams
    )


def numbers(memory: MemoryBroker, stream: str) -> list[int]:
    """What a receiver that leaves out what it has seen gets of a stream."""
    seen: dict[str, int] = {}
    for each in memory.sent:
        if each.headers["cloudEvents:partitionkey"] == stream:
            seen.setdefault(each.id, json.loads(each.body)["n"])
    return list(seen.values())


# --- Sending ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("V3", "V4", "V7", "V14", "X24", "X21")
async def test_messages_of_its_types_are_sent_as_events_and_are_done_when_confirmed(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory, key="{type}.{headers.tenant|'none'}", source="/shop")
    app.publish(
        "order.placed", {"id": 1}, stream="o-1", subject="order/1", headers={"tenant": "a", "x-trace": "t"}
    )
    app.publish("invoice.made", {"id": 2})
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 1)
    (sent,) = memory.sent
    (row,) = lab.rows("history")
    assert (sent.to, sent.key, sent.type, sent.id) == (
        "shop.events",
        "order.placed.a",
        "order.placed",
        str(row.id),
    )
    assert json.loads(sent.body) == {"id": 1}
    assert {name: sent.headers[f"cloudEvents:{name}"] for name in ("source", "subject", "partitionkey", "tenant")} == {
        "source": "/shop", "subject": "order/1", "partitionkey": "o-1", "tenant": "a",
    }  # fmt: skip
    assert sent.headers["x-trace"] == "t"
    assert (row.outcome, row.attempts, row.status & Flag.PUBLISHED) == ("done", 1, Flag.PUBLISHED)
    assert row.ended_at is not None
    assert [each.type for each in lab.rows("message")] == ["invoice.made"]


@pytest.mark.covers("V2")
async def test_a_network_failure_after_the_commit_loses_what_has_no_outbox(lab: Lab) -> None:
    """Two orders are committed while the broker is away: one is sent behind the commit, one has its message in it."""
    app, memory = lab.app(), broker()
    declare(app, memory)
    app.prepare()
    memory.go_down()
    with lab.connection() as db:
        db.execute("create table orders (id integer)")
        db.execute("insert into orders values (1)")
        db.commit()
        fates: list[Fate] = []
        with pytest.raises(TransportBroken):
            await sent_by_hand(
                memory, Outgoing("shop.events", b'{"n":1}', "1", "order.placed", "order.placed"), fates
            )
        db.execute("insert into orders values (2)")
        app.publish("order.placed", {"n": 2}, stream="s", on=db)
        db.commit()
        assert db.execute("select count(*) from orders").fetchall() == [(2,)]
    memory.come_up()
    async with lab.working(app):
        await settled(lab)
    assert fates == []
    assert [json.loads(each.body)["n"] for each in memory.sent] == [2]


async def sent_by_hand(memory: MemoryBroker, message: Outgoing, fates: list[Fate]) -> None:
    sender = memory.sender()
    await sender.open()
    await sender.send([message], lambda _, fate: fates.append(fate))


@pytest.mark.parametrize("mode", ["structured", "plain"])
async def test_other_modes(lab: Lab, mode: str) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory, mode=mode)
    app.publish("order.placed", {"id": 1}, headers={"n": 5})
    async with lab.working(app):
        await settled(lab)
    (sent,) = memory.sent
    body = json.loads(sent.body)
    if mode == "structured":
        assert sent.content_type == "application/cloudevents+json; charset=utf-8"
        assert (body["data"], body["type"], body["id"]) == ({"id": 1}, "order.placed", sent.id)
    else:
        assert (body, sent.headers, sent.content_type) == ({"id": 1}, {"n": "5"}, "application/json")


@pytest.mark.covers("X52")
async def test_streams_keep_their_order_through_faults_of_every_kind(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory, retry=RetryPolicy(attempts_max=5, base=0.0, factor=1.0, cap=0.0))
    streams = [f"s{n}" for n in range(5)]
    async with lab.working(app):
        for round, fault in enumerate(Fault):
            if fault is not Fault.TOO_LARGE:
                memory.fail(
                    fault, times=2, only=lambda each: each.headers["cloudEvents:partitionkey"] in ("s1", "s3")
                )
            publish(app, streams, 20, start=20 * round)
            await asyncio.sleep(0.05)
        await settled(lab)
    assert len(lab.rows("history")) == 100 * len(Fault)
    assert lab.rows("dead") == []
    for stream in streams:
        assert sorted(numbers(memory, stream)) == list(range(20 * len(Fault)))
    for stream in ("s0", "s2", "s4"):
        assert numbers(memory, stream) == list(range(20 * len(Fault)))


@pytest.mark.covers("C25", "V15")
@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.NO_ROUTE, Fault.TOO_LARGE])
async def test_every_answer_of_the_broker_at_every_index_of_a_run(lab: Lab, fault: Fault) -> None:
    """Twenty groups of five streams with four messages each; in each group another message has that fate."""
    app, _ = lab.still()
    memory = broker()
    declare(app, memory)
    groups = [(lane, index) for lane in range(5) for index in range(4)]
    culprits = {f"g{at}-{lane}{index}" for at, (lane, index) in enumerate(groups)}
    memory.fail(fault, times=10**6, only=lambda each: each.headers["cloudEvents:subject"] in culprits)
    memory.confirm_in(reversed)
    publish(app, [f"g{at}-{lane}" for at in range(len(groups)) for lane in range(5)], 4)
    app.prepare()
    await app.worker(until_idle=True).run()
    found = {row.subject: "sent" for row in lab.rows("history")}
    found |= {row.subject: f"dead {row.reason}" for row in lab.rows("dead")}
    found |= {
        row.subject: f"attempts {row.attempts}, failures {row.failures}, refunds {row.refunds}"
        for row in lab.rows("message")
    }
    wanted = {}
    for at, (culprit, index) in enumerate(groups):
        for lane in range(5):
            for n in range(4):
                what = "sent"
                if fault is Fault.TOO_LARGE:
                    what = f"dead {Reason.PAYLOAD_TOO_LARGE}" if (lane, n) == (culprit, index) else "sent"
                elif lane == culprit and n >= index:
                    what = (
                        "attempts 1, failures 1, refunds 0"
                        if n == index
                        else "attempts 0, failures 0, refunds 0"
                    )
                wanted[f"g{at}-{lane}{n}"] = what
    assert found == wanted


@pytest.mark.covers("X52", "X22")
async def test_an_unroutable_message_is_retried_for_an_hour_and_then_dead(lab: Lab) -> None:
    app, clock = lab.still()
    memory = broker()
    declare(app, memory, types=["order.*", "unbound"], key="{type}")
    memory.bind("shop.events", "other", queue="other")
    app.publish("unbound", {"n": 1})
    app.prepare()
    begun, starts = clock.monotonic(), 0
    while not lab.rows("dead"):
        await app.worker(until_idle=True).run()
        starts += 1
        clock.advance(seconds=360)
        assert starts < 40
    (letter,) = lab.rows("dead")
    assert (letter.reason, letter.last_reason, letter.attempts) == (
        Reason.POISON_MESSAGE, Reason.DEPENDENCY_FAILURE, 20,
    )  # fmt: skip
    assert "Nobody takes it at its address" in str(letter.errors)
    assert memory.sent == []
    delays = [SENDING.delay(n, roll=0.5) for n in range(1, 20)]
    assert 3000 < sum(delays) < 4500
    assert 1.6 <= delays[0] <= 2.4
    assert clock.monotonic() - begun > 3000


@pytest.mark.covers("X52")
async def test_a_later_binding_mends_it(lab: Lab) -> None:
    app, clock = lab.still()
    memory = broker()
    declare(app, memory, types=["late"])
    app.publish("late", {"n": 1}, stream="s")
    app.publish("late", {"n": 2}, stream="s")
    app.prepare()
    await app.worker(until_idle=True).run()
    assert memory.sent == []
    memory.bind("shop.events", "late", queue="billing")
    clock.advance(seconds=10)
    await app.worker(until_idle=True).run()
    assert numbers(memory, "s") == [1, 2]


async def test_what_can_never_be_sent_is_dead_at_once_and_its_neighbours_are_sent(lab: Lab) -> None:
    app, memory = lab.app(), MemoryBroker(Limits(body_bytes=1000))
    memory.bind("shop.events", "#", queue="billing")
    declare(app, memory, key="{headers.tenant}")
    app.publish("order.placed", {"n": 0}, stream="s", headers={"tenant": "a"})
    app.publish("order.placed", {"n": 1, "x": "x" * 2000}, stream="s", headers={"tenant": "a"})
    app.publish("order.placed", {"n": 2}, stream="s")
    app.publish("order.placed", {"n": 3}, stream="s", headers={"tenant": "a"})
    async with lab.working(app):
        await settled(lab)
    assert numbers(memory, "s") == [0, 3]
    assert {(row.reason, row.attempts) for row in lab.rows("dead")} == {
        (Reason.PAYLOAD_TOO_LARGE, 1), (Reason.VALIDATION_FAILURE, 1),
    }  # fmt: skip


async def test_nothing_is_sent_behind_a_message_that_halts_its_stream(lab: Lab) -> None:
    """It is found before the call, so what is behind it in the run must not be written either."""
    app, memory = lab.app(), broker()
    declare(app, memory, key="{headers.tenant}", on_dead="halt")
    memory.bind("shop.events", "a", queue="tenant")
    for stream in ("s", "t"):
        for n in range(4):
            headers = {} if (stream, n) == ("s", 1) else {"tenant": "a"}
            app.publish("order.placed", {"n": n}, stream=stream, headers=headers)
    app.prepare()
    await app.worker(until_idle=True).run()
    assert (numbers(memory, "s"), numbers(memory, "t")) == ([0], [0, 1, 2, 3])
    assert [(row.stream, row.reason) for row in lab.rows("dead")] == [("s", Reason.VALIDATION_FAILURE)]
    assert [row.attempts for row in lab.rows("message")] == [0, 0]


async def test_nothing_is_sent_behind_a_message_whose_key_is_missing(lab: Lab) -> None:
    """It keeps its place in the stream until a worker has the key."""
    mine, memory = new_key("mine"), broker()
    app, other = lab.app(keys=mine), lab.app(keys=new_key("another"))
    declare(app, memory)
    declare(other, memory)
    for n, publisher in enumerate((app, other, app)):
        publish(publisher, ["s"], 1, start=n)
    app.prepare()
    await app.worker(until_idle=True).run()
    assert numbers(memory, "s") == [0]
    assert lab.rows("dead") == []
    assert [row.attempts for row in lab.rows("message")] == [0, 0]


async def test_a_dead_letter_of_a_destination_can_be_edited_and_is_sent(lab: Lab) -> None:
    """There is no function whose annotation its body has to fit."""
    app, memory = lab.app(), MemoryBroker(Limits(body_bytes=1000))
    memory.bind("shop.events", "#", queue="billing")
    declare(app, memory)
    sent = app.publish("order.placed", {"n": 1, "x": "x" * 2000}, stream="s")
    async with lab.working(app):
        await settled(lab)
    app.operations.dead.edit(sent.id, '{"n": 1}', redrive=True)
    async with lab.working(app):
        await settled(lab)
    assert numbers(memory, "s") == [1]


async def test_what_came_through_an_inbox_is_not_sent_on_unless_that_is_wanted(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory)
    app.destination("on", memory, types=["order.*"], to="shop.events", forward=True)
    assert (INBOX, INBOX_SOURCE, INBOX_ID) == (inboxes.INBOX, inboxes.SOURCE, inboxes.SENDER_ID)
    memory.bind("elsewhere", "#", queue="theirs")
    app.inbox("billing", memory, queue="theirs")
    event = {"specversion": "1.0", "id": "their-1", "source": "/elsewhere", "type": "order.placed"}
    headers = {f"cloudEvents:{name}": value for name, value in event.items()}
    sender = memory.sender()
    await sender.open()
    await sender.send([Outgoing("elsewhere", b'{"n":1}', "1", "t", "k", headers)], lambda *_: None)
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 2)
    (sent,) = memory.sent[1:]
    assert (sent.id, sent.headers["cloudEvents:source"]) == ("their-1", "/elsewhere")
    assert not any("holdfast" in name for name in sent.headers)
    assert {(row.queue, row.outcome) for row in lab.rows("history")} == {
        ("orders", "cancelled"),
        ("on", "done"),
    }


@pytest.mark.covers("X51")
async def test_a_service_that_reads_what_it_sends_does_not_echo(lab: Lab) -> None:
    """Its own exchange is bound to its inbox, and everything that it hears is of a type that it sends."""
    app, memory = lab.app(), broker()
    declare(app, memory, source="/shop")
    app.inbox("own", memory, queue="billing")
    seen: list[int] = []

    @app.handler("order.placed", name="listen")
    async def listen(body: dict[str, int]) -> None:
        seen.append(body["n"])

    publish(app, ["a", "b"], 5)
    async with lab.working(app):
        await auntil(lambda: len(seen) == 20)
        await settled(lab)
    assert len(memory.sent) == 10
    assert sorted(seen) == sorted([*range(5)] * 4), "each from its own publish, and once from the broker"


@pytest.mark.parametrize("name", [INBOX, INBOX_SOURCE, INBOX_ID])
def test_headers_of_what_was_received_cannot_be_published(name: str) -> None:
    """A handler that copied them all would publish what is never sent, or has the id of the received one."""
    app = Holdfast("sqlite:///:memory:")
    with pytest.raises(InvalidMessage, match=name):
        app.message("order.placed", {}, headers={"tenant": "a", name: "billing"})


@pytest.mark.parametrize("mode", ["binary", "structured", "plain"])
@pytest.mark.parametrize("name", ["ce-id", "CE-x", "cloudEvents_specversion"])
async def test_a_header_that_a_receiver_would_take_for_an_attribute_is_not_sent(
    lab: Lab, name: str, mode: str
) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory, mode=mode)
    app.publish("order.placed", {"n": 1}, headers={name: "x"})
    app.publish("order.placed", {"n": 2}, headers={"ceremony": "x"})
    async with lab.working(app):
        await settled(lab)
    assert [json.loads(each.body).get("data", json.loads(each.body))["n"] for each in memory.sent] == [2]
    (dead,) = lab.rows("dead")
    assert name in str(dead.errors)


async def test_what_a_transport_can_never_send_is_dead_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again for an hour it would hold up its stream for nothing."""

    async def send(self: MemorySender, batch: Sequence[Outgoing], sent: Sent) -> None:
        for index in range(len(batch)):
            is_bad = json.loads(batch[index].body)["n"] == 0
            sent(index, Rejected("its type is too long", for_good=True) if is_bad else CONFIRMED)

    monkeypatch.setattr(MemorySender, "send", send)
    app = lab.app()
    declare(app, broker())
    publish(app, ["a"], 3)
    async with lab.working(app):
        await settled(lab)
    (dead,) = lab.rows("dead")
    assert (dead.reason, dead.attempts, "its type is too long" in str(dead.errors)) == (
        Reason.VALIDATION_FAILURE,
        1,
        True,
    )


@pytest.mark.covers("X51")
async def test_what_a_transport_does_not_know_costs_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than a message may start. It is sent again with the same id until there is an answer."""
    calls: list[list[str]] = []

    async def send(self: MemorySender, batch: Sequence[Outgoing], sent: Sent) -> None:
        calls.append([each.id for each in batch])
        for index in range(len(batch)):
            sent(index, Unknown("it has not answered") if len(calls) <= 25 else CONFIRMED)

    monkeypatch.setattr(MemorySender, "send", send)
    app, clock = lab.still()
    declare(app, broker())
    publish(app, ["a"], 1)
    app.prepare()
    while not lab.is_empty():
        await app.worker(until_idle=True).run()
        clock.advance(seconds=1.5)
        assert len(calls) < 40
    assert [(row.attempts, row.failures, row.outcome) for row in lab.rows("history")] == [(1, 0, "done")]
    assert len(calls) == 26
    assert len({tuple(each) for each in calls}) == 1


async def test_what_has_failed_goes_over_a_connection_of_its_own(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may cost the others theirs: here the broker drops every connection over which it comes again."""
    used: list[tuple[MemorySender, list[int]]] = []
    plain = MemorySender.send

    async def send(self: MemorySender, batch: Sequence[Outgoing], sent: Sent) -> None:
        used.append((self, [json.loads(each.body)["n"] for each in batch]))
        await plain(self, batch, sent)

    monkeypatch.setattr(MemorySender, "send", send)
    app, clock = lab.still()
    memory = broker()
    declare(app, memory)
    memory.fail(Fault.REFUSE, times=1, only=lambda each: json.loads(each.body)["n"] == 0)
    publish(app, ["a"], 3)
    app.prepare()
    async with lab.working(app):
        await auntil(lambda: [row.failures for row in lab.rows("message")].count(1) == 1)
        memory.fail(Fault.CUT_BEFORE, times=1, only=lambda each: json.loads(each.body)["n"] == 0)
        clock.advance(seconds=3)
        await auntil(lambda: len(used) > 1)
        publish(app, ["b"], 3, start=10)
        await auntil(lambda: lab.query("select count(*) from {history} where stream = 'b'")[0][0] == 3)
        clock.advance(seconds=3)
        await settled(lab)
    line, aside = used[0][0], used[1][0]
    assert aside is not line
    assert all((sender is aside) == (numbers == [0]) for sender, numbers in used[1:])
    assert len([numbers for sender, numbers in used if sender is aside]) == 2


@pytest.mark.parametrize("streams", [["a"], [f"s{n}" for n in range(30)]])
async def test_no_more_is_under_way_than_the_transport_allows(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, streams: list[str]
) -> None:
    monkeypatch.setattr(MemorySender, "limits", Limits(in_flight=10))
    under_way, most = 0, 0
    plain = MemorySender.send

    async def send(self: MemorySender, batch: Sequence[Outgoing], sent: Sent) -> None:
        nonlocal under_way, most
        under_way += len(batch)
        most = max(most, under_way)
        try:
            await asyncio.sleep(0)
            await plain(self, batch, sent)
        finally:
            under_way -= len(batch)

    monkeypatch.setattr(MemorySender, "send", send)
    app, memory = lab.app(), broker()
    declare(app, memory)
    publish(app, streams, 60 // len(streams) * 2)
    async with lab.working(app):
        await settled(lab)
    assert len(memory.sent) == 60 * 2 // len(streams) * len(streams)
    assert 5 <= most <= 10


# --- Outages ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X51")
async def test_without_a_broker_nothing_is_claimed_and_afterwards_everything_goes_out(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    memory.go_down()
    declare(app, memory)
    publish(app, ["a", "b"], 30)
    async with lab.working(app) as worker:
        await asyncio.sleep(0.7)
        assert lab.rows("lease") == []
        assert {(row.attempts, row.epoch, row.refunds) for row in lab.rows("message")} == {(0, 0, 0)}
        assert worker.gate.allowed("orders", 0.0) == 0
        memory.come_up()
        await settled(lab)
        memory.go_down()
        publish(app, ["a", "b"], 30, start=30)
        await asyncio.sleep(0.7)
        assert lab.rows("lease") == []
        memory.come_up()
        await settled(lab)
    for stream in "ab":
        assert numbers(memory, stream) == list(range(60))
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}


@pytest.mark.covers("X51")
@pytest.mark.one_postgres
@pytest.mark.parametrize("streams", [1, 1000])
async def test_an_outage_of_three_days_costs_nothing(lab: Lab, streams: int) -> None:
    app, clock = lab.still()
    memory = broker()
    declare(app, memory)
    publish(app, [f"s{n}" for n in range(streams)], 2 if streams > 1 else 20)
    app.prepare()
    memory.fail(Fault.CUT_BEFORE, times=10**6)
    for _ in range(36):  # it answers now and then, and is lost with the first message
        await app.worker(until_idle=True).run()
        clock.advance(hours=1)
    memory.go_down()
    for _ in range(36):
        await app.worker(until_idle=True).run()
        clock.advance(hours=1)
    assert memory.sent == []
    assert lab.rows("dead") == []
    assert {(row.attempts, row.failures, row.refunds) for row in lab.rows("message")} == {(0, 0, 0)}


@pytest.mark.covers("X51")
def test_connecting_again_is_tried_at_once_and_then_at_most_three_times_a_minute() -> None:
    for roll in (0.0, 0.5, 1.0):
        at, attempts = 0.0, []
        while at < 72 * 3600:
            attempts.append(at)
            at += reconnect.pause(len(attempts), roll)
        assert len(attempts) <= 3 * 72 * 60 + 10
        assert max(later - before for before, later in itertools.pairwise(attempts)) <= 30.001
        assert 0.06 <= attempts[1] <= 0.1
        late = [each for each in attempts if each > 120]
        assert all(sum(start <= each < start + 60 for each in late[:20]) <= 3 for start in late[:10])
    assert reconnect.pause(0, 1.0) == 0.0


@pytest.mark.covers("X51")
async def test_what_holds_for_everyone_opens_the_breaker_and_its_end_closes_it(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    memory.block("low on memory")
    declare(app, memory)
    publish(app, ["a"], 5)

    async with lab.working(app):
        await auntil(lambda: [row.state for row in lab.rows("breaker")] == ["open"])
        assert "low on memory" in lab.rows("breaker")[0].why
        assert lab.rows("lease") == []
        memory.unblock()
        await settled(lab)
        await auntil(lambda: [(row.state, row.forced) for row in lab.rows("breaker")] == [("closed", False)])
    assert numbers(memory, "a") == list(range(5))


@pytest.mark.covers("X51")
async def test_an_operators_word_about_the_breaker_stands(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory)
    app.prepare()
    app.operations.breakers.trip("orders", why="no more today")
    publish(app, ["a"], 5)
    async with lab.working(app):
        memory.block()
        await asyncio.sleep(0.6)
        memory.unblock()
        await asyncio.sleep(0.6)
        assert [(row.state, row.forced) for row in lab.rows("breaker")] == [("open", True)]
        assert memory.sent == []
        app.operations.breakers.reset("orders")
        await settled(lab)


async def test_a_missing_exchange_keeps_it_shut_and_counts_nothing(lab: Lab) -> None:
    app, memory = lab.app(), MemoryBroker()
    declare(app, memory)
    publish(app, ["a"], 5)
    async with lab.working(app):
        await auntil(lambda: [row.state for row in lab.rows("breaker")] == ["open"])
        assert {(row.attempts, row.epoch) for row in lab.rows("message")} == {(0, 0)}
        memory.bind("shop.events", "#", queue="billing")
        await settled(lab)
    assert numbers(memory, "a") == list(range(5))


async def test_one_process_that_is_cut_off_does_not_stop_another(lab: Lab) -> None:
    app, memory, cut = lab.app(), broker(), MemoryBroker()
    declare(app, memory)
    other = lab.app()
    cut.go_down()
    declare(other, cut)
    async with lab.working(other), lab.working(app):
        publish(app, ["a"], 50)
        await settled(lab)
    assert numbers(memory, "a") == list(range(50))


@pytest.mark.covers("X23")
async def test_two_relays_send_nothing_twice(lab: Lab) -> None:
    memory, apps = broker(), [lab.app(), lab.app()]
    for app in apps:
        declare(app, memory, batch=10)
    async with lab.working(apps[0]), lab.working(apps[1]):
        publish(apps[0], [f"s{n}" for n in range(40)], 20)
        await settled(lab)
    ids = [each.id for each in memory.sent]
    assert len(ids) == len(set(ids)) == 800
    for n in range(40):
        assert numbers(memory, f"s{n}") == list(range(20))


async def test_stopping_waits_for_the_answers_of_what_is_under_way(lab: Lab) -> None:
    app, memory = lab.app(), broker()
    declare(app, memory)
    async with lab.working(app):
        publish(app, [f"s{n}" for n in range(20)], 10)
        await auntil(lambda: bool(memory.sent))
    sent = [each.id for each in memory.sent]
    done = {str(row.id) for row in lab.rows("history")}
    assert set(sent) == done
    assert len(sent) == len(done), "nothing was sent twice, and what was sent is done"
    assert lab.rows("lease") == []


async def test_only_after_a_long_outage_it_catches_up_slowly(lab: Lab) -> None:
    app, clock = lab.still()
    memory = broker()
    declare(app, memory)
    async with lab.working(app) as worker:
        for away, allowed in ((9.0, None), (11.0, 500)):
            memory.go_down()
            await auntil(lambda: worker.gate.allowed("orders", clock.monotonic()) == 0)
            await asyncio.sleep(0.6)  # it is seen that it is away
            clock.advance(seconds=away)
            memory.come_up()
            await auntil(lambda: worker.gate.allowed("orders", clock.monotonic()) != 0)
            await asyncio.sleep(0.6)
            rates = worker.gate._hands("orders", clock.monotonic())
            assert [each.rate.per_second for each in rates] == ([] if allowed is None else [allowed])


# --- Declaring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"types": "order.*"}, "types= is a list"),
        ({"types": []}, "types= is a list"),
        ({"mode": "odd"}, "mode="),
        ({"exchange": "x"}, "has no 'exchange'"),
        ({"batch": 501}, "batch="),
        ({"key": "{typo}"}, "typo"),
        ({"source": "a b"}, "source="),
        ({"retry": "never"}, "retry profile"),
    ],
)
def test_mistakes_are_told_when_it_is_declared(options: dict[str, Any], said: str) -> None:
    app = Holdfast("sqlite:///:memory:")
    with pytest.raises(InvalidSettings, match=said):
        declare(app, broker(), **options)
    with pytest.raises(InvalidSettings, match="no transport"):
        app.destination("x", "amqp://", types=["a"])  # type: ignore[arg-type]


# --- The seed's numbers -----------------------------------------------------------------------------------------------


@pytest.mark.covers("V12")
@pytest.mark.parametrize("streams", [["a"], [f"s{n}" for n in range(250)]])
async def test_batches_of_100(lab: Lab, monkeypatch: pytest.MonkeyPatch, streams: list[str]) -> None:
    app, memory, sizes = lab.app(), broker(), []
    declare(app, memory, batch=100)
    send = MemorySender.send

    async def counted(self: MemorySender, batch: Sequence[Outgoing], sent: Any) -> None:
        sizes.append(len(batch))
        await send(self, batch, sent)

    monkeypatch.setattr(MemorySender, "send", counted)
    publish(app, streams, 250 // len(streams))
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 250)
    # How long a run is depends on the pace.
    assert max(sizes) == 100 if len(streams) > 1 else 1 < max(sizes) <= 100
    assert sum(sizes) == 250


@pytest.mark.covers("V13")
async def test_a_poll_every_second(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed's relay looks once a second; ours is told of new messages, and does so too if it is asked to."""
    app, _ = lab.still(poll_min=1.0, poll_max=1.0)
    declare(app, broker())
    waited: list[float] = []
    wait = type(app.store).wait

    async def counted(self: Any, seconds: float, *more: Any) -> None:
        waited.append(seconds)
        await wait(self, min(seconds, 0.01), *more)

    monkeypatch.setattr(type(app.store), "wait", counted)
    async with lab.working(app):
        await auntil(lambda: len(waited) > 5)
    assert set(waited) == {1.0}
