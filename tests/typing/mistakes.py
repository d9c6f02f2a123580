"""Mistakes of users. Both type checkers must refuse every line with a mark, and no other (tools/typing_test.py).

Never run. Each mark says what is wrong.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from holdfast import (
    Alert,
    Context,
    CopyTo,
    DeadLetter,
    Holdfast,
    Published,
    Reason,
    Recovery,
    Request,
    RetryPolicy,
    Settings,
    Snooze,
    every,
)
from holdfast.orchestrations import Flow, activity, orchestration


@dataclass
class Order:
    id: int


@dataclass
class Refund:
    id: int


app = Holdfast("sqlite:///shop.db")
order = Order(1)
refund = Refund(1)
now = datetime.now(UTC)


# --- An application and its settings ------------------------------------------------------------------------

Holdfast("sqlite:///shop.db", leese=60)  # refused: no such setting
Holdfast("sqlite:///shop.db", lease="30")  # refused: seconds are a number
Holdfast("sqlite:///shop.db", retry="patiently")  # refused: no such profile
Holdfast("sqlite:///shop.db", recovery={Reason.TIMEOUT_EXCEEDED: 600})  # refused: a Recovery, not a number
Holdfast(url="sqlite:///shop.db", metrics="yes")  # refused: a bool
Settings().but(heart_beat=5)  # refused: no such setting
RetryPolicy().but(attempts=3)  # refused: attempts_max
RetryPolicy(attempts_max="3")  # refused: a number


# --- Publishing ---------------------------------------------------------------------------------------------


async def publishing(db: sqlite3.Connection, ctx: Context) -> None:
    app.publish("order.placed", order, steam="order-1")  # refused: stream
    app.publish("order.placed", order, delay="5")  # refused: seconds or a timedelta
    app.publish("order.placed", order, at=5)  # refused: a datetime
    app.publish("order.placed", order, at="2026-01-01T00:00:00Z")  # refused: a datetime
    app.publish("order.placed", order, stream=17)  # refused: a text
    app.publish("order.placed", order, headers=["trace"])  # refused: a mapping
    app.publish("order.placed", order, headers={1: "trace"})  # refused: names are text
    app.publish("order.placed", order, id="4711")  # refused: a UUID
    app.publish("order.placed", order, event=True, expect="3")  # refused: a version is a number
    app.publish("order.placed", order, db)  # refused: on=db
    app.publish(order)  # refused: the type comes first
    answer: Published = app.apublish("order.placed", order)  # refused: await it
    app.apublish("order.placed", order).id  # refused: await it
    await app.publish("order.placed", order)  # refused: publish is not async
    await app.apublish("order.placed", order, dedup="invoice-1")  # refused: dedupe
    await app.apublish("order.placed", order, deadline=60)  # refused: a datetime or a timedelta
    app.message("order.placed", order, on=db)  # refused: publish_many takes on=
    app.message("order.placed", order, subjekt="order 1")  # refused: subject
    app.publish_many([("order.placed", order)])  # refused: app.message(...)
    app.publish_many(app.message("order.placed", order))  # refused: a list of them
    ctx.publish("order.placed", order, on=db)  # refused: it is stored when the message is settled
    ctx.publish("order.placed", order, steam="order-1")  # refused: stream
    app.publish("order.placed", order).uuid  # refused: id
    print(answer)


# --- Handlers -----------------------------------------------------------------------------------------------


@app.handler("order.placed")
async def place(order: Order, ctx: Context) -> None: ...


@app.handler("order.paid", batch=50)
def pay(orders: list[Order], contexts: list[Context]) -> None: ...


@app.handler("clock.struck")
def strike(ctx: Context) -> None: ...


@app.handler("bell.rang")
def ring() -> int:
    return 1


async def to_handlers(ctx: Context) -> None:
    place.publish(refund)  # refused: an Order
    place.publish({"id": 1})  # refused: an Order
    place.publish()  # refused: an Order
    place.publish(order, steam="order-1")  # refused: stream
    place.publish(order, queue="another")  # refused: its own queue
    await place.apublish("order 1")  # refused: an Order
    pay.publish([order])  # refused: one order a message
    pay.publish(refund)  # refused: an Order
    strike.publish(order)  # refused: it takes no body
    ring.publish(order)  # refused: it takes no body
    await place(refund, ctx)  # refused: an Order
    text: str = ring()  # refused: it returns an int
    print(text)


@app.handler("order.placed", order="strit")  # refused: strict
def strit(order: Order) -> None: ...


@app.handler("order.placed", family=17)  # refused: family="customers"
def of_a_number(order: Order) -> None: ...


@app.handler("order.placed", on_dead="stop")  # refused: halt
def stop(order: Order) -> None: ...


@app.handler("order.placed", after_death="hodl")  # refused: hold
def hodl(order: Order) -> None: ...


@app.handler("order.placed", after_death=CopyTo)  # refused: CopyTo("queue")
def copy(order: Order) -> None: ...


@app.handler("order.placed", retry="impatient")  # refused: no such profile
def impatient(order: Order) -> None: ...


@app.handler("order.placed", key="streams", per_key=1)  # refused: stream
def keyed(order: Order) -> None: ...


@app.handler("order.placed", timeout="30s")  # refused: seconds
def slow(order: Order) -> None: ...


@app.handler("order.placed", concurency=3)  # refused: concurrency
def misspelt(order: Order) -> None: ...


@app.handler("order.placed", errors={ValueError: "validation"})  # refused: a Reason
def classified(order: Order) -> None: ...


@app.handler("order.placed", rate=100)  # refused: "100/s"
def rated(order: Order) -> None: ...


@app.handler("order.placed", cluster_concurrency=app.rate("smtp", "5/s"))  # refused: app.slots(...)
def crowded(order: Order) -> None: ...


@app.handler("order.placed")  # refused: the context is a Context
def wrong_context(order: Order, ctx: str) -> None: ...


@app.handler("order.placed")  # refused: nobody would give it the third
def wants_more(order: Order, ctx: Context, db: sqlite3.Connection) -> None: ...


@app.handler("order.placed")  # refused: the body comes first
def context_first(ctx: Context, order: Order) -> None: ...


@app.handler("order.placed", batch=10)  # refused: a list of orders
def no_list(order: Order) -> None: ...


@app.handler("order.placed", batch=10)  # refused: a list of contexts
def one_context(orders: list[Order], ctx: Context) -> None: ...


@app.handler(Order)  # refused: a type is a text
def by_class(order: Order) -> None: ...


# --- In a handler -------------------------------------------------------------------------------------------


def in_a_handler(ctx: Context) -> None:
    ctx.mark(1)  # refused: the name of a step
    ctx.attempts  # refused: attempt
    ctx.complete()  # refused: on=
    ctx.complete(sqlite3.connect("shop.db"))  # refused: on=
    with ctx.transaction() as db:
        db.commit()  # refused: the end of the block commits
    with ctx.transaction() as db:
        db.execute(1)  # refused: SQL
    with ctx.transaction(sqlite3.Connection) as lite:
        lite.exeute("select 1")  # refused: execute
    with ctx.transaction("sqlite3"):  # refused: the class
        pass
    Snooze("5 minutes")  # refused: a number of seconds


async def in_an_async_handler(ctx: Context) -> None:
    async with ctx.transaction(psycopg.AsyncConnection) as db:
        cursor = await db.execute("select 1")
        cursor.fetchone()[0]  # refused: await it
    async with ctx.transaction(psycopg.AsyncConnection) as connection:
        plain: sqlite3.Connection = connection  # refused: it is psycopg's
        print(plain)


# --- Breakers, limits, alerts, hooks ------------------------------------------------------------------------


def limits() -> None:
    app.breaker("llm", windw=5)  # refused: window
    app.breaker("llm", cooldown="30s")  # refused: seconds
    app.breaker("llm", trials=2.5)  # refused: a whole number
    app.rate("smtp", 100)  # refused: "100/s"
    app.slots("smtp", "5")  # refused: a number
    app.alert_webhook("https://alerts.example")  # refused: the secret


@app.on_alert  # refused: an Alert
def told(text: str) -> None: ...


@app.on_dead_letter  # refused: a DeadLetter
def ticket(letter: Order) -> None: ...


def reading(letter: DeadLetter, alert: Alert) -> None:
    letter.reasons  # refused: reason
    alert.what == "began"  # refused: raised, over


# --- Working, testing, operating ----------------------------------------------------------------------------


async def working() -> None:
    async with app.running(queue="place"):  # refused: queues
        pass
    async with app.running(queues=[place]):  # refused: names
        pass
    with app.running():  # refused: async with
        pass
    app.worker(until_idl=True)  # refused: until_idle
    with app.testing() as t:
        t.advance(minuts=5)  # refused: minutes
        t.advance(5)  # refused: of what?
        t.drain(raise_=False)  # refused: raises
    with app.testing(uri="postgresql://localhost/shop"):  # refused: url
        pass
    app.process_work_batch(want={"place": "10"})  # refused: a number of heads
    app.process_work_batch(wants={"place": 10})  # refused: want
    for leased in app.process_work_batch(want={"place": 1}).work:
        app.failed(leased, 0, "no", reason="timeout")  # refused: a Reason
        app.failed(leased, error="no")  # refused: the flags of what was completed
        app.done(leased, order)  # refused: app.message(...)
    app.operations.messages.retri(UUID(int=1))  # refused: retry
    app.operations.audit(since="yesterday")  # refused: a datetime


def passing_on(options: Mapping[str, Any], more: dict[str, int]) -> None:
    app.publish("order.placed", order, **more)  # refused: not every option is a number
    Recovery(after="600")  # refused: seconds
    print(options, now)


# --- Orchestrations -----------------------------------------------------------------------------------------


@activity()
async def charge(order: Order) -> int:
    return order.id


@activity()
def weigh(order: Order, ctx: Context) -> float:
    return 1.5


@orchestration()  # refused: async def
def at_once(order: Order, flow: Flow) -> int:
    return 1


@orchestration(versio="2")  # refused: version
async def wrong_keyword(order: Order) -> int:
    return 1


@orchestration()
async def fulfil(order: Order, flow: Flow) -> int:
    text: str = await charge(order)  # refused: it is an int
    await charge(refund)  # refused: an Order
    await charge()  # refused: an Order is missing
    await charge(order, order)  # refused: one value
    await weigh(order, flow)  # refused: the worker gives the context
    await charge.using(retri="patient")(order)  # refused: retry
    await charge.using(retry="patiently")(order)  # refused: no such profile
    await charge.using(timeout=5)(refund)  # refused: still an Order
    await charge.using(inline="always")(order)  # refused: True, False or "turn"
    word: int = await flow.signal("approved", str)  # refused: text
    await flow.map(charge, [refund])  # refused: Orders
    await flow.first(order=order)  # refused: something to wait for
    flow.now = now  # refused: read only
    await flow.sleep(1, jiter=0.1)  # refused: jitter
    async with flow.saga() as undo:
        undo(charge, refund)  # refused: an Order
    await fulfil(refund)  # refused: an Order
    fulfil.start("order")  # refused: an Order
    print(text, word)
    return 1


@app.activity(inline="each")  # refused: True, False or "turn"
async def price(order: Order) -> int:
    return 1


@app.activity(on_dead="halt")  # refused: "answer" or "wait"
async def waits_for_nobody(order: Order) -> Order:
    return order


@app.activity(retri="api")  # refused: retry
async def pays(order: Order) -> Order:
    return order


@app.orchestration(version=2)  # refused: text
async def delivers(order: Order) -> Order:
    return order


app.orchestrations.start(fulfil, refund)  # refused: an Order
app.orchestrations.signal("order-1")  # refused: the name of the signal
app.orchestrations.start(fulfil, order, attributes={"customer": 17})  # refused: texts
app.orchestrations.start(fulfil, order, atributes={})  # refused: attributes
fulfil.using(attributes=["customer"])  # refused: a mapping
app.orchestrations.result("order-1", timout=1.0)  # refused: timeout

Holdfast.from_config(lease="60")  # refused: a number
app.operations.destinations.pause()  # refused: the name of the destination

app.schedule("nightly", every(minutes=1), "report.due", misfire="some")  # refused: all, latest or skip
app.schedule("nightly", every(minutes=1), "report.due", overlap="never")  # refused: one of four
app.set_schedule("nightly", 60, "report.due")  # refused: a rule
app.set_schedule("nightly", every(minute=1), "report.due")  # refused: minutes
app.drop_schedule()  # refused: the name
app.cancel("not-an-id")  # refused: a UUID
app.operations.outages.show("one")  # refused: a number
app.operations.messages.ended(late="5m")  # refused: seconds
app.operations.messages.stuck(oldest=60.0)  # refused: older

app.request_kind("grading")  # refused: sla
app.request_kind("grading", sla="20 min")  # refused: seconds
paying = app.request_kind("paying", sla=60, takes=Order, gives=Order)
app.request(paying, refund)  # refused: an Order
app.request("paying", order)  # refused: a kind
app.request(paying, order, kind="writing")  # refused: variant
app.resolve(17, {})  # refused: an id
app.operations.requests.accept("x")  # refused: why


@paying.completed  # refused: a request of Order and Order
def paid(request: Request[str, Order]) -> None: ...
