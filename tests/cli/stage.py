"""A shop on a bad day, always the same one: fixed ids, a clock that stands still, a file that is copied."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.clock import MovableClock
from holdfast.model.endpoint import Endpoint, Standing
from holdfast.model.message import Reason
from holdfast.model.outage import Began, Ended
from holdfast.model.schedule import Note
from holdfast.model.work import Outcome
from holdfast.requests import verbs
from holdfast.requests.hooks import Pen
from holdfast.requests.verbs import Arrival, Opening
from holdfast.rules.recurrence import daily, every, yearly
from holdfast.schedules import setting
from holdfast.schedules.defining import define
from holdfast.settings import Settings
from holdfast.store.plans import endpoints, outages, schedules
from holdfast.transports import MemoryBroker
from tests.operations import world as worlds
from tests.operations.world import NOON

FILE, URL = "shop.db", "sqlite:///shop.db"
ORDER_ID = "01a1e164-2605-75af-9fb6-{:012x}"


def ids() -> Iterator[UUID]:
    """Ids of one minute: they begin alike, and differ at their ends."""
    for n in range(1, 1000):
        yield UUID(ORDER_ID.format(n * 0x9E3779B97F4A % 2**48))


@dataclass(frozen=True, slots=True)
class Names:
    """The messages that commands are about."""

    ready: UUID
    waiting: UUID
    retrying: UUID
    dead: UUID
    halting: UUID
    done: UUID
    asked: UUID
    timed_out: UUID


def app(clock: MovableClock) -> Holdfast:
    """The application that the command line finds."""
    shop = Holdfast(URL, clock=clock, archive="archive", dead_count=2)

    @shop.handler("order.placed", name="send_receipt", breaker=shop.breaker("mail-server"))
    def send_receipt(order: dict[str, Any]) -> None: ...

    @shop.handler("order.placed", name="charge")
    def charge(order: dict[str, Any]) -> None: ...

    return shop


def relaying(clock: MovableClock) -> Holdfast:
    """The same with a destination and two inboxes. Its broker cannot be reached from here."""
    shop, memory = app(clock), MemoryBroker()
    memory.name = "rabbitmq"
    memory.go_down()
    shop.destination("shipping", memory, types=["shipment.*"], to="shop.events", key="{type}")
    shop.inbox("partners", memory, queue="shop.partners")
    shop.prepare()
    return shop


def recurring(world: worlds.World) -> None:
    """Schedules: one in a zone, of which something was left out; one that is paused; birthdays."""
    run = world.store.run
    rules = {
        "nightly": daily("02:30", zone="Europe/Berlin"),
        "sweep": every(minutes=15),
        "birthday/17": yearly("1990-03-14", "09:00", zone="America/New_York"),
        "birthday/18": yearly("02-29", "09:00", zone="Asia/Tokyo"),
    }
    for name, rule in rules.items():
        run(setting.put(define(Settings(), name, rule, "report.due", {"of": name}), None))
    run(schedules.note([("nightly", Note("2026-03-01", "2026-03-03", 3, "not the latest"))]))
    world.operations.by("anna").schedules.pause("sweep", why="the disk is full")


def brokers(world: worlds.World, worker: int) -> None:
    """What a worker has told of its connections."""
    shipping = Endpoint("destination", "shipping", "rabbitmq", "shop.events, key {type}")
    partners = Endpoint("inbox", "inbox/partners", "rabbitmq", "shop.partners")
    old = Endpoint("inbox", "inbox/old", "rabbitmq", "shop.old")
    world.store.run(endpoints.meet([shipping, partners, old]))
    lost = Standing("broken", 252.0, "RabbitMQ at amqp://shop@rabbit.example:5672/ cannot be used: it refused the "
                    "connection", 12, 260.0)  # fmt: skip
    world.store.run(
        endpoints.report(
            worker, [("shipping", Standing("open", 4000.0, last_age=3.0)), ("inbox/partners", lost)]
        )
    )


def requests(world: worlds.World, clock: MovableClock) -> tuple[UUID, UUID]:
    """One of each kind: open, delayed, completed, cancelled, and timed out with two late results; as of now."""
    numbers = iter(range(1, 100))
    pen, end = Pen(None), clock.instant

    def made() -> UUID:
        return UUID(f"01a1e164-2605-75af-9fb7-{next(numbers) * 0x9E3779B97F4B % 2**48:012x}")

    def ask(minutes_ago: float, variant: str, subject: str) -> UUID:
        clock.instant, id = end - timedelta(minutes=minutes_ago), made()
        within = timedelta(minutes=20 if variant == "writing" else 60)
        opening = Opening(id, "grading", variant, subject, '{"essay":"..."}', within, None, 0.75, None)
        world.store.run(verbs.open_(opening, pen))
        return id

    def resolve(id: UUID, minutes_ago: float, failed: str | None = None) -> None:
        clock.instant = end - timedelta(minutes=minutes_ago)
        world.store.run(verbs.resolve([Arrival(made(), id, failed, '{"score":7.5}')], pen))

    timed_out = ask(50, "writing", "submission-11")
    resolve(ask(45, "speaking", "submission-12"), 5)
    cancelled = ask(40, "writing", "submission-13")
    clock.instant = end - timedelta(minutes=30)
    world.store.run(verbs.cancel(cancelled, "the student withdrew", pen))
    resolve(timed_out, 25)
    resolve(timed_out, 20, "the model ran out of memory")
    ask(16, "writing", "submission-14")
    asked = ask(8, "writing", "submission-15")
    clock.instant = end
    world.store.run(verbs.sweep(pen))
    return asked, timed_out


def build(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Path, Names, MovableClock]:
    """The file as it is before every command, and who is who in it."""
    made = ids()
    clock = MovableClock(NOON)
    monkeypatch.setattr(worlds, "uuid4", lambda: next(made))
    world = worlds.make(f"sqlite:///{folder / FILE}", clock)
    for queue in ("send_receipt", "charge", "old_mailer"):
        world.subscribe(queue, "order.placed")
    world.worker("web-1:4711", "send_receipt", "charge")
    world.worker("web-2:815", "charge")

    done = world.publish("invoice.sent", queue="charge")
    world.done(world.claim("charge", name="web-1:4711")[0])
    deaths = []
    for n in range(4):
        deaths.append(world.publish("invoice.sent", queue="charge", stream=f"order-{n}" if n == 3 else None))
        (leased,) = world.claim("charge", name="web-1:4711")
        world.settle(
            leased, Outcome.DEAD, failed=True, halt=n == 3, flags=32768, reason=Reason.POISON_MESSAGE,
            last_reason=Reason.HANDLER_EXCEPTION, fingerprint="5f0c1e22ab90" if n < 3 else "77d1aa03c4fe",
            error="KeyError: 'iban'" if n < 3 else "ValueError: no such country: Ruritania",
        )  # fmt: skip
    for _ in range(2):
        world.publish("invoice.sent", "order-3", queue="charge")
    clock.advance(minutes=7)
    first = world.publish("order.placed", "order-17", body='{"order": 17}', queue="send_receipt")
    waiting = world.publish("order.placed", "order-17", queue="send_receipt")
    world.fail(world.claim("send_receipt", name="web-1:4711")[0], 90.0, Reason.TRANSPORT_UNAVAILABLE,
               "ConnectionRefusedError: mail.example.com:25")  # fmt: skip
    for _ in range(3):
        world.publish("customer.registered.by.the.partner.programme", queue="charge")
    ready = world.publish("order.placed")
    world.publish("parcel.lost")
    world.claim("charge", name="web-2:815", total=1)
    clock.advance(seconds=40)
    world.worker("web-3:99", "send_receipt", "charge")
    by = world.operations.by("anna")
    by.queues.pause("charge", "the bank asked for it")
    shop = app(clock)
    world.breakers.get("mail-server")
    world.operations.by("anna").breakers.trip(
        "mail-server", why="the mail server is being moved", seconds=600.0
    )
    shop.close()
    outage(world)
    clock.advance(seconds=20)
    brokers(world, world.worker("web-3:99"))
    asked, timed_out = requests(world, clock)
    recurring(world)
    world.store.close()
    with sqlite3.connect(folder / FILE) as database:
        database.execute("pragma wal_checkpoint(truncate)")
    names = Names(ready, waiting, first, deaths[0], deaths[3], done, asked, timed_out)
    return folder / FILE, names, clock


def outage(world: worlds.World) -> None:
    """Two hours ago nobody worked for half an hour; what was due then has died since."""
    back = NOON - timedelta(hours=2)
    down = back - timedelta(minutes=30)
    began = Began("absent", down + timedelta(minutes=10), down, back, down + timedelta(minutes=10))
    world.store.run(outages.look(300.0, 30.0, lambda *_: began))
    world.store.run(
        outages.look(300.0, 30.0, lambda open, *_: open and Ended(open, back + timedelta(seconds=9)))
    )


def copied(source: Path, folder: Path) -> None:
    for each in ("", "-wal", "-shm"):
        (folder / f"{FILE}{each}").unlink(missing_ok=True)
    shutil.rmtree(folder / "archive", ignore_errors=True)
    (folder / "letters.jsonl").unlink(missing_ok=True)
    shutil.copy(source, folder / FILE)
