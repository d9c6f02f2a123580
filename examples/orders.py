"""Two services and a broker: a shop that takes orders, and a warehouse that ships them, in the order of each customer.

Run it: RABBITMQ_URL=amqp://guest:guest@localhost/ python orders.py
Without RABBITMQ_URL it uses a broker in memory and says so.

Nothing is lost and nothing happens twice: the shop publishes in the transaction of its order, the relay sends until the
broker has confirmed, the warehouse stores a message under its sender's id, and ships in the transaction that ends it.
"""

import asyncio
import os
import sqlite3
from contextlib import closing

from holdfast import Context, Holdfast
from holdfast.transports import Exchange, MemoryBroker, Queue, RabbitMQ

URL = os.environ.get("RABBITMQ_URL")


def broker() -> RabbitMQ | MemoryBroker:
    if URL:
        return RabbitMQ(
            URL,
            declare=[
                Exchange("shop.events"),
                Queue("shop.warehouse", {"shop.events": ["order.placed"]}, is_single_active=True),
                Queue("shop.parcels", {"shop.events": ["parcel.sent"]}, is_single_active=True),
            ],
        )
    memory = MemoryBroker()
    memory.bind("shop.events", "order.placed", queue="shop.warehouse")
    memory.bind("shop.events", "parcel.sent", queue="shop.parcels")
    return memory


# --- The shop ---------------------------------------------------------------------------------------------------------

rabbit = broker()
shop = Holdfast("sqlite:///shop.db")
shop.destination("orders", rabbit, types=["order.*"], to="shop.events", source="/shop")
shop.inbox("parcels", rabbit, queue="shop.parcels", stream="{partitionkey}")


def place(customer: str, number: int) -> None:
    """The order and its message: both are committed, or neither."""
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("insert into orders values (?, ?, 'placed')", (customer, number))
        order = {"customer": customer, "number": number}
        shop.publish("order.placed", order, stream=customer, subject=f"order/{customer}/{number}", on=db)
        db.commit()


@shop.handler("parcel.sent")
def sent(parcel: dict, ctx: Context) -> None:
    with ctx.transaction(sqlite3.Connection) as db:
        db.execute(
            "update orders set status = 'sent' where customer = ? and number = ?",
            (parcel["customer"], parcel["number"]),
        )


# --- The warehouse ----------------------------------------------------------------------------------------------------

warehouse = Holdfast("sqlite:///warehouse.db")
warehouse.inbox("orders", rabbit, queue="shop.warehouse", stream="{partitionkey}")
warehouse.destination("parcels", rabbit, types=["parcel.*"], to="shop.events", source="/warehouse")


@warehouse.handler("order.placed")
def ship(order: dict, ctx: Context) -> None:
    ctx.publish("parcel.sent", order, stream=order["customer"])  # stored with the shipment, or not at all
    with ctx.transaction(sqlite3.Connection) as db:
        db.execute(
            "insert into shipment (customer, number) values (?, ?)", (order["customer"], order["number"])
        )


# --- Both at work -----------------------------------------------------------------------------------------------------


def rows(path: str, query: str) -> list:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


async def main() -> None:
    print("broker:", "RabbitMQ" if URL else "in memory (set RABBITMQ_URL for a real one)")
    for app in (shop, warehouse):
        app.migrate()
    rows("shop.db", "create table orders (customer text, number integer, status text)")
    rows("warehouse.db", "create table shipment (at integer primary key, customer text, number integer)")
    shop.prepare()
    for number in range(20):
        for customer in ("Ann", "Bob", "Cleo"):
            place(customer, number)  # nobody works yet: the orders wait in the shop's own database
    async with shop.running(), warehouse.running(), asyncio.timeout(30):
        while rows("shop.db", "select 1 from orders where status = 'placed' limit 1"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    for customer in ("Ann", "Bob", "Cleo"):
        shipped = [
            n
            for (n,) in rows(
                "warehouse.db", f"select number from shipment where customer = '{customer}' order by at"
            )
        ]
        assert shipped == list(range(20)), shipped
        print(f"{customer}: {len(shipped)} orders, shipped once each and in order")


if __name__ == "__main__":
    asyncio.run(main())
