"""`holdfast demo --scenario services`: two services, and a broker between them that is killed twice.

A shop writes orders and publishes them in the same transactions. Its relay sends them, billing's inbox stores them, a
handler writes each bill and publishes it, and the shop receives it in the same way. Customers keep ordering while the
broker is away. At the end everything is counted in both databases.

`make demo SCENARIO=services` starts a RabbitMQ of its own for it, if one can be had (tools/demo_services.py). Otherwise
the broker is one in memory, and the demo says so.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .. import Context, Holdfast
from ..telemetry.logs import hushed
from ..transports import Exchange, MemoryBroker, Queue, RabbitMQ
from ..transports.contract import Connector
from .playing import played
from .proof import Row

if TYPE_CHECKING:
    from rich.console import Console

EXCHANGE, CUSTOMERS, ORDERS, BATCH = "shop.events", 20, 1000, 20
AWAY = 3.0  # seconds for which the broker is gone, each time
EFFECTS = "create table effect (at integer primary key, customer text, number integer)"
PLACED = "create table placed (at integer primary key, customer text, number integer)"


class Killable(Protocol):
    """A broker that the demo may kill and start again."""

    @property
    def url(self) -> str: ...
    @property
    def name(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


class InMemory:
    """The broker if there is no other: it loses its connections, with all that was not confirmed."""

    name, url = "a broker in memory (no RabbitMQ here)", ""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.bind(EXCHANGE, "order.placed", queue="shop.billing")
        self.broker.bind(EXCHANGE, "order.billed", queue="shop.bills")

    def kill(self) -> None:
        self.broker.go_down()

    def start(self) -> None:
        self.broker.come_up()


@dataclass
class Day:
    """What happened."""

    folder: Path
    broker: Killable
    kills: int = 0
    placed_meanwhile: int = 0
    apps: dict[str, Holdfast] = field(default_factory=dict)

    def path(self, service: str) -> str:
        return str(self.folder / f"{service}.db")

    def rows(self, service: str, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.path(service), timeout=10)) as db:
            return db.execute(query).fetchall()


def run(console: Console, broker: Killable | None = None, *, limit: float = 45.0) -> int:
    """Play it: 0 if every promise was kept, 1 if one was not."""
    day = Day(Path(tempfile.mkdtemp(prefix="holdfast-demo-")), broker or InMemory())
    console.print("[bold]Holdfast demo, two services[/]")
    console.print(f"Databases in {day.folder}", soft_wrap=True, highlight=False)
    console.print(f"Broker: {day.broker.name}", soft_wrap=True, highlight=False)
    declare(day)

    def all_of_it() -> list[Row]:
        # Lost connections are part of the story, which reports them itself.
        with hushed("holdfast", logging.ERROR), hushed("pika", logging.CRITICAL):
            asyncio.run(play(day, console, limit))
        return prove(day)

    code = played(console, day.folder, all_of_it)
    for app in day.apps.values():
        app.close()
    return code


# --- The services -----------------------------------------------------------------------------------------------------


def connector(broker: Killable) -> Connector:
    if isinstance(broker, InMemory):
        return broker.broker
    return RabbitMQ(
        broker.url,
        declare=[
            Exchange(EXCHANGE),
            Queue("shop.billing", {EXCHANGE: ["order.placed"]}, is_single_active=True),
            Queue("shop.bills", {EXCHANGE: ["order.billed"]}, is_single_active=True),
        ],
    )


def declare(day: Day) -> None:
    """Two applications, each with a database, a destination, an inbox and a handler."""
    rabbit = connector(day.broker)
    shop, billing = (Holdfast(f"sqlite:///{day.path(name)}") for name in ("shop", "billing"))
    shop.destination("orders", rabbit, types=["order.placed"], to=EXCHANGE, source="/shop", catch_up="5000/s")
    shop.inbox("bills", rabbit, queue="shop.bills", stream="{partitionkey}")
    billing.inbox("orders", rabbit, queue="shop.billing", stream="{partitionkey}")
    billing.destination(
        "bills", rabbit, types=["order.billed"], to=EXCHANGE, source="/billing", catch_up="5000/s"
    )

    @billing.handler("order.placed")
    def bill(order: dict[str, Any], ctx: Context) -> None:
        ctx.publish("order.billed", order, stream=order["customer"])
        with ctx.transaction(sqlite3.Connection) as db:
            db.execute(
                "insert into effect (customer, number) values (?, ?)", (order["customer"], order["number"])
            )

    @shop.handler("order.billed")
    def note(order: dict[str, Any], ctx: Context) -> None:
        with ctx.transaction(sqlite3.Connection) as db:
            db.execute(
                "insert into effect (customer, number) values (?, ?)", (order["customer"], order["number"])
            )

    day.apps = {"shop": shop, "billing": billing}
    for name, app in day.apps.items():
        app.migrate()
        app.prepare()
        day.rows(name, EFFECTS)
    day.rows("shop", PLACED)


# --- The day ----------------------------------------------------------------------------------------------------------


async def play(day: Day, console: Console, limit: float) -> None:
    batches = ORDERS // BATCH
    kills = {batches // 4, batches * 5 // 8}
    back: asyncio.Task[None] | None = None
    async with day.apps["shop"].running(), day.apps["billing"].running():
        for batch in range(batches):
            if batch in kills:
                if back is not None:
                    await back
                back = asyncio.create_task(away(day, console))
                await asyncio.sleep(0.2)
            await asyncio.to_thread(place, day, batch)
            day.placed_meanwhile += BATCH if back is not None and not back.done() else 0
            await asyncio.sleep(0.1)
        if back is not None:
            await back
        console.print(f"{ORDERS} orders are committed; waiting for the rest to arrive")
        try:
            async with asyncio.timeout(limit):
                while not await asyncio.to_thread(is_over, day):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError:
            console.print(f"[red]not everything has arrived after {limit:g} s[/]")


async def away(day: Day, console: Console) -> None:
    day.kills += 1
    await do(day.broker, day.broker.kill)
    console.print(f"the broker is killed ({day.kills}); customers keep ordering", highlight=False)
    await asyncio.sleep(AWAY)
    await do(day.broker, day.broker.start)
    console.print("the broker is back", highlight=False)


async def do(broker: Killable, action: Callable[[], None]) -> None:
    if isinstance(broker, InMemory):
        action()  # it belongs to this loop
    else:
        await asyncio.to_thread(action)


def place(day: Day, batch: int) -> None:
    """Orders and their messages, in one transaction."""
    shop = day.apps["shop"]
    orders = [
        (f"customer-{k % CUSTOMERS}", k // CUSTOMERS) for k in range(batch * BATCH, (batch + 1) * BATCH)
    ]
    with closing(sqlite3.connect(day.path("shop"), timeout=10)) as db:
        db.executemany("insert into placed (customer, number) values (?, ?)", orders)
        shop.publish_many(
            (
                shop.message("order.placed", {"customer": customer, "number": number}, stream=customer)
                for customer, number in orders
            ),
            on=db,
        )
        db.commit()


def is_over(day: Day) -> bool:
    return all(day.rows(name, "select count(*) from effect")[0][0] >= ORDERS for name in day.apps)


# --- The proof --------------------------------------------------------------------------------------------------------


def prove(day: Day) -> list[Row]:
    placed = Counter(day.rows("shop", "select customer, number from placed"))
    rows = [
        Row(
            "The broker was killed",
            f"{day.kills} times, {day.placed_meanwhile} orders meanwhile",
            day.kills == 2,
        ),
        Row("Orders were committed", f"{placed.total()} of {ORDERS}", placed.total() == ORDERS),
    ]
    for name, what in (("billing", "Billed"), ("shop", "Heard back")):
        found = day.rows(name, "select customer, number from effect order by at")
        count = Counter(found)
        lost, twice = len(placed - count), (count - placed).total()
        ordered = all(
            [number for customer, number in found if customer == each] == list(range(ORDERS // CUSTOMERS))
            for each in {customer for customer, _ in placed}
        )
        rows.append(
            Row(f"{what}: none lost, each once", f"{lost} lost, {twice} twice", not lost and not twice)
        )
        rows.append(Row(f"{what}: in order", f"{CUSTOMERS} customers", ordered))
    dead = sum(day.rows(name, "select count(*) from holdfast_dead")[0][0] for name in day.apps)
    rows.append(Row("No dead letters", str(dead), dead == 0))
    return rows
