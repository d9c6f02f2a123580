"""Destinations and inboxes for operators: who is connected, what waits; try, pause, resume; `why` across the wire."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pika
import pytest

from holdfast import Dedupe, Holdfast
from holdfast.errors import NotFound, UsageError
from holdfast.model.endpoint import Endpoint, Standing
from holdfast.operations import Tried
from holdfast.operations.endpoints import condition
from holdfast.store.plans import endpoints, engine, queues
from holdfast.transports import Exchange, Fault, MemoryBroker, Queue, RabbitMQ
from tests.inboxes.conftest import until
from tests.inboxes.test_intake import event, out, send
from tests.operations.world import World
from tests.transports.conftest import rabbitmq, rabbitmq_version
from tests.worker.conftest import lab
from tests.worker.lab import Lab, auntil

__all__ = ["lab", "rabbitmq", "rabbitmq_version"]

ORDERS = Endpoint("destination", "orders", "rabbitmq", "shop.events, key {type}")
LOST = Standing("broken", 90.0, "it refused the connection", 12, 100.0)


def shop(app: Holdfast) -> MemoryBroker:
    broker = MemoryBroker()
    broker.bind("shop", "#", queue="q")
    app.destination("orders", broker, types=["order.*"], to="shop")
    return broker


# --- What workers tell ----------------------------------------------------------------------------------------


def told(world: World, worker: int, standing: Standing, endpoint: Endpoint = ORDERS) -> None:
    world.store.run(endpoints.meet([endpoint]))
    world.store.run(endpoints.report(worker, [(endpoint.queue, standing)]))


def test_what_workers_tell_is_seen_by_every_process(world: World) -> None:
    world.subscribe("orders", "order.placed")
    first, second = world.worker("w1", "orders"), world.worker("w2", "orders")
    world.publish()
    told(world, first, Standing("open", 60.0, last_age=3.0))
    told(world, second, LOST)
    (found,) = world.operations.destinations.list()
    now = world.operations.now()
    assert (found.name, found.kind, found.transport, found.address) == (
        "orders", "destination", "rabbitmq", "shop.events, key {type}",
    )  # fmt: skip
    assert (found.state, found.connected, found.waiting, found.is_declared) == (
        "partly connected",
        1,
        1,
        False,
    )
    assert found.last_at == now - timedelta(seconds=3)
    open_, broken = found.connections
    assert (open_.worker, open_.state, open_.since, open_.why) == (
        "w1",
        "open",
        now - timedelta(seconds=60),
        None,
    )
    assert (broken.state, broken.tries, broken.why) == ("broken", 12, "it refused the connection")
    assert world.operations.inboxes.list() == []


def test_a_worker_that_is_gone_is_not_shown_and_what_it_told_is_removed(world: World) -> None:
    told(world, world.worker("w1", "orders"), LOST)
    world.clock.advance(seconds=31)
    assert world.operations.destinations.show("orders").state == "no worker"
    world.clock.advance(days=2)
    world.store.run(queues.prune("workers", 86_400.0, 100))
    assert world.store.read(endpoints.connections()) == []
    assert [each.name for each in world.operations.destinations.list()] == ["orders"]


def test_a_worker_that_was_forgotten_tells_nothing(world: World) -> None:
    worker = world.worker("w1", "orders")
    world.store.run(engine.retire_worker(worker))
    told(world, worker, LOST)
    assert world.store.read(endpoints.connections()) == []


def test_times_do_not_go_back(world: World) -> None:
    first, second = world.worker("w1", "orders"), world.worker("w2", "orders")
    told(world, first, Standing("open", 60.0, last_age=3.0))
    told(world, second, Standing("open", 60.0, last_age=300.0))
    told(world, second, Standing("open", 60.0))
    found = world.operations.destinations.show("orders")
    assert found.last_at == world.operations.now() - timedelta(seconds=3)
    assert [each.last_at for each in found.connections] == [
        found.last_at,
        world.operations.now() - timedelta(seconds=300),
    ]


def test_a_queue_that_is_dropped_takes_its_endpoint_along(world: World) -> None:
    world.subscribe("orders", "order.placed")
    world.store.run(endpoints.meet([ORDERS]))
    world.operations.queues.drop("orders")
    assert world.operations.destinations.list() == []


@pytest.mark.parametrize(
    ("states", "is_paused", "said"),
    [
        ([], False, "no worker"),
        (["open"], True, "paused"),
        (["open", "open"], False, "connected"),
        (["open", "broken"], False, "partly connected"),
        (["broken", "broken"], False, "broken"),
        (["open", "held"], False, "held"),
    ],
)
def test_one_word_for_all_connections(states: Any, is_paused: bool, said: str) -> None:
    assert condition(states, is_paused=is_paused) == said


# --- Commands ---------------------------------------------------------------------------------------------------


def test_a_pause_and_its_end_stand_in_the_audit(lab: Lab) -> None:
    app = lab.app()
    shop(app)
    app.inbox("billing", MemoryBroker(), queue="q")
    app.prepare()
    operations = app.operations.by("anna")
    for group, name in ((operations.destinations, "orders"), (operations.inboxes, "billing")):
        group.pause(name, "the bank asked for it")
        assert (group.show(name).state, group.show(name).why) == ("paused", "the bank asked for it")
        assert group.resume(name) is True
        assert group.resume(name) is False
        assert group.show(name).state == "no worker"
    assert [(each.action, each.queue, each.who) for each in operations.audit()] == [
        ("inboxes.resume", "inbox/billing", "anna"),
        ("inboxes.pause", "inbox/billing", "anna"),
        ("destinations.resume", "orders", "anna"),
        ("destinations.pause", "orders", "anna"),
    ]


def test_an_unknown_name_is_refused_with_those_that_exist(world: World) -> None:
    world.store.run(endpoints.meet([ORDERS]))
    for ask in (world.operations.destinations.show, world.operations.destinations.pause):
        with pytest.raises(NotFound, match="There is no destination receipts; there are: orders"):
            ask("receipts")
    with pytest.raises(NotFound, match="There is no inbox orders; there are: none"):
        world.operations.inboxes.show("orders")
    with pytest.raises(UsageError, match="its application is needed"):
        world.operations.destinations.test("orders")


def test_a_try_connects_and_sends_nothing(sqlite_app: Holdfast) -> None:
    broker = shop(sqlite_app)
    tried = sqlite_app.operations.destinations.test("orders")
    assert (tried.is_usable, tried.why, broker.sent) == (True, None, [])
    broker.go_down()
    tried = sqlite_app.operations.destinations.test("orders")
    assert not tried.is_usable
    assert "down" in str(tried.why)


def test_a_try_on_the_real_broker_finds_what_is_missing_and_unsafe(
    sqlite_app: Holdfast, rabbitmq: str
) -> None:
    missing = f"missing-{uuid4().hex[:8]}"
    broker = RabbitMQ(rabbitmq, may_declare=False)
    sqlite_app.destination("orders", broker, types=["order.*"], to=missing)
    sqlite_app.inbox("billing", broker, queue=missing, bind={"amq.topic": ["#"]})

    def names(tried: Tried) -> list[str]:
        return [each.name for each in tried.findings]

    for group, name, found in (
        (sqlite_app.operations.destinations, "orders", ["exchange-missing"]),
        (sqlite_app.operations.inboxes, "billing", ["queue-missing"]),
    ):
        tried = group.test(name)
        assert (names(tried), tried.is_usable) == (found, False)


def test_the_doctor_looks_at_the_brokers(sqlite_app: Holdfast, rabbitmq: str) -> None:
    """Unsafe settings of a real broker, a broker that is away, and what workers have told."""
    name = f"doctor-{uuid4().hex[:8]}"
    away = RabbitMQ("amqp://guest@127.0.0.1:1/")
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=False)
        try:
            sqlite_app.inbox("billing", RabbitMQ(rabbitmq, may_declare=False), queue=name)
            sqlite_app.destination("orders", RabbitMQ(rabbitmq), types=["order.*"], to=name)
            sqlite_app.destination("audit", away, types=["order.*"], to=name)
            found = {each.name: each for each in sqlite_app.operations.doctor()}
        finally:
            channel.queue_delete(name)
    assert found["queue-not-durable"].severity == "warning"
    assert found["exchange-missing"].severity == "error"
    assert "Destination audit cannot be used from here: " in found["destination-unusable"].text
    assert "inbox-unusable" not in found


def test_the_doctor_tells_what_workers_told(world: World) -> None:
    told(world, world.worker("w1", "orders"), LOST)
    (found,) = [each for each in world.operations.doctor() if each.name == "destination-broken"]
    assert found.text == (
        "Destination orders: 1 of 1 worker cannot connect to rabbitmq, the first since 2040-05-01 11:58:30 UTC: "
        "it refused the connection"
    )
    told(world, world.worker("w1", "orders"), Standing("open", 1.0))
    assert not [each for each in world.operations.doctor() if each.name == "destination-broken"]


def test_the_status_names_connections_that_are_broken(world: World) -> None:
    """It said that nothing was wrong while nothing could be sent."""
    told(world, world.worker("w1", "orders"), LOST)
    told(world, world.worker("w2", "orders"), Standing("open", 1.0))
    inbox = Endpoint("inbox", "inbox/billing", "rabbitmq", "shop.billing")
    told(world, world.worker("w3", "inbox/billing"), LOST, inbox)
    found = {each.name: each.text for each in world.operations.status().problems}
    assert "Destination orders: 1 of 2 workers cannot connect to rabbitmq" in found["destination-broken"]
    assert "Inbox billing: 1 of 1 worker cannot connect to rabbitmq" in found["inbox-broken"]
    told(world, world.worker("w1", "orders"), Standing("open", 1.0))
    assert "destination-broken" not in [each.name for each in world.operations.status().problems]


def test_what_two_see_at_a_broker_is_said_once(sqlite_app: Holdfast, rabbitmq: str) -> None:
    """The destination's broker object declares the queue that the inbox reads."""
    name = f"doctor-{uuid4().hex[:8]}"
    broker = RabbitMQ(rabbitmq, declare=[Exchange(name), Queue(name, {name: ["#"]})])
    sqlite_app.destination("orders", broker, types=["order.*"], to=name)
    sqlite_app.inbox("billing", broker, queue=name)
    found = [each for each in sqlite_app.operations.doctor() if name in each.text]
    assert sorted(each.name for each in found) == ["exchange-not-yet", "queue-not-yet"]


@pytest.fixture
def sqlite_app(tmp_path: Any) -> Any:
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}")
    app.migrate()
    yield app
    app.close()


# --- Running workers ----------------------------------------------------------------------------------------------


async def test_a_running_worker_tells_when_its_connection_breaks_and_opens(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.standings.LOOKS_EVERY", 0.02)
    monkeypatch.setattr("holdfast.worker.standings.REPORTS_EVERY", 1e9)  # only what changes
    app = lab.app()
    broker = shop(app)
    show = lab.operations.destinations.show
    async with lab.working(app):
        await auntil(lambda: lab.operations.destinations.list() and show("orders").state == "connected")
        broker.go_down()
        await auntil(lambda: show("orders").state == "broken")
        await auntil(lambda: "down" in str(show("orders").connections[0].why))
        assert show("orders").connections[0].tries > 0
        broker.come_up()
        app.publish("order.placed", {"n": 1})
        await auntil(lambda: show("orders").state == "connected")
    assert show("orders").state == "no worker"  # it took its row along


async def test_a_held_inbox_says_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.standings.LOOKS_EVERY", 0.02)
    monkeypatch.setattr("holdfast.inboxes.intake.LOOKS_EVERY", 0.02)
    app = lab.app()
    broker = MemoryBroker()
    broker.declare("q")
    app.inbox("billing", broker, queue="q")
    show = lab.operations.inboxes.show
    async with lab.working(app):
        await auntil(lambda: lab.operations.inboxes.list() and show("billing").state == "connected")
        lab.operations.inboxes.pause("billing", "audit")
        await auntil(lambda: [each.state for each in show("billing").connections] == ["held"])
        lab.operations.inboxes.resume("billing")
        await auntil(lambda: show("billing").state == "connected")


# --- Why ------------------------------------------------------------------------------------------------------------


async def ended(lab: Lab, app: Holdfast, id: UUID) -> str:
    async with lab.working(app):
        await auntil(lambda: len(lab.rows("history")) == 1)
    (sentence,) = app.operations.why(id)
    assert lab.operations.why(id) == [sentence]  # a process without the application knows it, too
    return sentence


@pytest.mark.covers("X21")
async def test_why_says_when_a_message_was_sent_and_how_quickly_it_was_confirmed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.standings.LOOKS_EVERY", 0.02)
    app = lab.app()
    shop(app)
    id = app.publish("order.placed", {"n": 1}).id
    sentence = await ended(lab, app, id)
    assert sentence.startswith("In queue orders: sent to memory:orders at ")
    assert ", confirmed in " in sentence
    assert sentence.endswith(" ms, first attempt.")
    (line,) = app.operations.messages.show(id).ended
    assert line.started_at is not None
    assert line.started_at <= line.ended_at


async def test_the_time_until_the_confirm_is_that_of_the_message_and_not_its_part_of_the_call(
    lab: Lab,
) -> None:
    app, clock = lab.still()
    broker = shop(app)
    slow = broker.confirm_in

    def answers(order: list[int]) -> list[int]:
        clock.advance(seconds=0.25)
        return order

    slow(answers)
    app.publish_many(app.message("order.placed", {"n": n}) for n in range(50))
    async with lab.working(app, until_idle=True):
        await auntil(lambda: len(lab.rows("history")) == 50)
    took = {row.ended_at - row.started_at for row in lab.rows("history")}
    assert all(each >= timedelta(seconds=0.25) for each in took)


async def test_the_second_attempt(lab: Lab) -> None:
    app = lab.app()
    broker = shop(app)
    broker.fail(Fault.REFUSE)
    app.publish("order.placed", {"n": 1})
    async with lab.working(app):
        await auntil(lambda: [each.failures for each in lab.rows("message")] == [1])
        (row,) = lab.rows("message")
        (sentence,) = app.operations.why(row.id)
        assert "Its last try was not answered or failed: " in sentence
        lab.operations.messages.retry(row.id)
        await auntil(lambda: len(lab.rows("history")) == 1)
    assert app.operations.why(row.id)[0].endswith("ms, second attempt.")


def test_why_says_that_there_is_no_connection(world: World) -> None:
    world.subscribe("orders", "order.placed")
    id = world.publish()
    first = world.worker("w1", "orders")
    told(world, first, LOST)
    lead = "In queue orders: ready since 12:00:00 UTC: it is the next one of its queue. "
    assert world.operations.why(id) == [
        f"{lead}No connection to rabbitmq since 11:58:30 UTC, tried 12 times: it refused the connection."
    ]
    told(world, world.worker("w2", "orders"), Standing("open", 5.0))
    assert world.operations.why(id) == [
        f"{lead}1 of 2 workers have no connection to rabbitmq, the first since 11:58:30 UTC, tried 12 times: "
        "it refused the connection; the others send."
    ]


async def test_why_says_where_a_message_came_from(lab: Lab) -> None:
    app = lab.app()
    broker = MemoryBroker()
    broker.bind("shop", "#", queue="q")
    app.inbox("billing", broker, queue="q")
    await send(broker, event(4711, "/shop"), out(2), out(3, body=b"\xff"))
    async with lab.working(app, queues=["inbox/billing"]):
        await until(lambda: len(lab.rows("message")) == 2 and len(lab.rows("dead")) == 1)
    by_number = {json.loads(row.body)["n"]: row.id for row in lab.rows("message")}
    assert app.operations.why(by_number[4711])[1:] == [
        "It was received by inbox billing from /shop, as 4711."
    ]
    assert app.operations.why(by_number[2])[1:] == ["It was received by inbox billing from billing, as 2."]
    assert app.operations.why(lab.rows("dead")[0].id)[1:] == [
        "It was received by inbox billing from billing, as 3."
    ]

    @app.handler("order.placed", name="bill")
    def bill(body: dict[str, Any]) -> None: ...

    app.prepare()
    app.operations.housekeeping()
    async with lab.working(app, queues=["bill"]):
        await until(lambda: len(lab.rows("history")) == 2)
    for number, source in ((4711, "/shop"), (2, "billing")):
        (sentence,) = app.operations.why(by_number[number])
        assert sentence.endswith(f" after 1 attempt. It was received as {number} of {source}.")


async def test_a_scope_that_a_caller_gave_is_no_origin(lab: Lab) -> None:
    app = lab.app()

    @app.handler("order.placed", name="bill")
    def bill(body: dict[str, Any]) -> None: ...

    id = app.publish("order.placed", {}, dedupe=Dedupe("4711", scope="mine")).id
    async with lab.working(app):
        await until(lambda: len(lab.rows("history")) == 1)
    (sentence,) = app.operations.why(id)
    assert "received" not in sentence
