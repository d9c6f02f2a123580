"""What users rightly write: both type checkers must accept all of it (tools/typing_test.py). Each mark names a use.

Never run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack
from uuid import uuid4

import aiosqlite
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from holdfast import (
    Alert,
    Answer,
    AnyHandler,
    Asked,
    Batch,
    Breaker,
    BreakerOptions,
    CircuitOpen,
    Context,
    CopyTo,
    Dead,
    DeadLetter,
    Event,
    Flag,
    Handler,
    Health,
    Holdfast,
    MessageOptions,
    NewMessage,
    Planned,
    Published,
    Reason,
    Recovery,
    Request,
    Resolved,
    RetryPolicy,
    RetryProfile,
    Running,
    Settings,
    SettingsOptions,
    Settlement,
    SharedRate,
    SharedSlots,
    Snooze,
    TransactionConnection,
    Worker,
    daily,
    yearly,
)
from holdfast.operations import Letter, Operations, Status
from holdfast.orchestrations import Activity, ActivityFailed, First, Flow, activity, orchestration
from holdfast.testing import Drained, MovableClock


@dataclass
class Order:
    id: int
    email: str = ""


@dataclass
class Rush(Order):
    hours: int = 1


order = Order(1)


# --- An application and its settings ------------------------------------------------------------------------

# Accepted: settings.
app = Holdfast("sqlite:///shop.db", lease=60, heartbeat=5.0, retry="brisk", alert_dead=10)
every: SettingsOptions = {
    "lease": 60,
    "archive": "s3://letters/shop",
    "threads": 4,
}  # accepted: settings as a value
second = Holdfast("postgresql://db/shop", metrics=True, otel=False, keys=None, **every)  # accepted: passed on
# Accepted: a clock, a rule.
tested = Holdfast("sqlite:///:memory:", clock=MovableClock(), redact=["secret-[0-9]+"])
# Accepted: recovery.
recovering = Holdfast("sqlite:///r.db", recovery={Reason.TIMEOUT_EXCEEDED: Recovery(after=60)})
changed: Settings = Settings().but(lease=60)  # accepted: a copy of the settings
profile: RetryProfile = "api"  # accepted: the name of a profile
quickly = RetryPolicy(attempts_max=3, base=1, cap=60).but(jitter=0.2, per_reason={})  # accepted: a policy


# --- Handlers -----------------------------------------------------------------------------------------------


@app.handler("order.placed", "order.changed", retry="patient", order="available", on_dead="halt")
async def place(order: Order, ctx: Context) -> None:  # accepted: async, with a context
    ctx.publish("order.confirmed", {"id": order.id}, stream=f"order-{order.id}", delay=timedelta(minutes=5))
    key: str = ctx.idempotency_key
    print(key, ctx.attempt + 1, ctx.headers.get("trace"), ctx.created_at.isoformat())
    late: timedelta = ctx.lateness
    print(ctx.due_at + late, [each.per_second + 1.0 for each in app.operations.outages.list(limit=3)])
    print([each.lateness for each in app.operations.messages.ended(late=300.0)])


@app.handler("order.placed", name="receipts", timeout=30, concurrency=4, key="stream", per_key=1)
def send_receipt(order: Order) -> None:  # accepted: def, the body alone
    print(order.email)


@app.handler("order.billed", family="customers", breaker="crm-*", rate="5/s")  # accepted: a family
async def bill(order: Order, ctx: Context) -> None: ...


@app.handler("order.raw")
def raw(body: dict[str, Any]) -> Snooze | Dead | None:  # accepted: wishes as answers
    return Snooze(minutes=5) if body else Dead("empty")


@app.handler("order.any")
def whatever(body: Any) -> None: ...  # accepted: any body


@app.handler("order.object")
def object_like(body: object) -> None: ...  # accepted: an object


@app.handler("order.maybe")
def maybe(body: Order | None = None) -> None: ...  # accepted: a body that may be missing


@app.handler("list.made")
def of_a_list(numbers: list[int]) -> None: ...  # accepted: a body that is a list, without batch


@app.handler("order.keyword")
async def by_keyword(order: Order, *, ctx: Context) -> int:  # accepted: a context by its name
    return ctx.attempt


@app.handler("order.default")
def with_default(order: Order, ctx: Context, limit: int = 3) -> None: ...  # accepted: a default


@app.handler("clock.struck")
async def strike(ctx: Context) -> None: ...  # accepted: a context alone


@app.handler("bell.rang")
def ring() -> int:  # accepted: nothing
    return 1


@app.handler("reading.taken", batch=50)
async def store(orders: list[Order]) -> None: ...  # accepted: a batch


@app.handler("reading.noted", batch=50)
def note(
    orders: list[Order], contexts: list[Context]
) -> list[Snooze | None]:  # accepted: a batch with contexts
    return [Snooze(seconds=each.attempt) for each in contexts]


@app.handler("order.guarded", breaker="llm", rate="100/s", cluster_concurrency=5, catch_up="10/s")
def guarded(order: Order) -> None: ...  # accepted: limits by name


@app.handler("order.shared", breaker=app.breaker("llm"), rate=app.rate("smtp", "5/s", burst=2), retry=quickly)
def shared(order: Order) -> None: ...  # accepted: limits that are shared


@app.handler(
    "order.slots", cluster_concurrency=app.slots("smtp", 5), steps=["charged"], errors={OSError: Reason(6)}
)
def slotted(order: Order) -> None: ...  # accepted: slots, steps, errors


@app.handler(
    "order.copied", after_death=send_receipt, recovery={Reason.DEPENDENCY_FAILURE: Recovery(after=600)}
)
def copied(order: Order) -> None: ...  # accepted: a copy for another handler


@app.handler("order.alerted", after_death="alert", key=lambda body: body.id, per_key=2)
def alerted(order: Order) -> None: ...  # accepted: a key that a function makes


@app.handler("order.elsewhere", after_death=CopyTo("receipts"), ordered=False, retry=profile)
def elsewhere(order: Order) -> None: ...  # accepted: a copy for a queue


class Greeter:
    def greet(self, order: Order, ctx: Context) -> None: ...


class Called:
    async def __call__(self, order: Order) -> None: ...


method = app.handler("order.method", name="method")(Greeter().greet)  # accepted: a method
instance = app.handler("order.object", name="instance")(Called())  # accepted: an object that is called
everyone: list[AnyHandler] = [
    place,
    send_receipt,
    ring,
    store,
    strike,
    method,
]  # accepted: handlers in a list
precise: Handler[Order, [Order], None] = send_receipt  # accepted: the type of a handler


async def to_handlers(ctx: Context, connection: sqlite3.Connection) -> None:
    sent: Published = place.publish(order)  # accepted: its body
    # Accepted: a subclass, options.
    place.publish(Rush(2, hours=3), stream="order-2", delay=1.5, on=connection)
    # Accepted: apublish.
    again: Published = await place.apublish(order, dedupe="order-1", at=datetime.now(UTC))
    # Accepted: more options.
    send_receipt.publish(order, headers={"trace": "1"}, subject="order 1", id=uuid4())
    raw.publish({"id": 1})  # accepted: a dict
    whatever.publish(3)  # accepted: anything
    whatever.publish()  # accepted: or nothing
    object_like.publish("text")  # accepted: any object
    maybe.publish()  # accepted: a missing body
    maybe.publish(order)  # accepted: or one
    of_a_list.publish([1, 2])  # accepted: the list is the body
    by_keyword.publish(order)  # accepted: with a context by name
    with_default.publish(order)  # accepted: with a default
    strike.publish()  # accepted: no body
    await strike.apublish(deadline=timedelta(hours=1))  # accepted: no body, options
    ring.publish(delay=5)  # accepted: no parameters
    store.publish(order)  # accepted: one of a batch
    note.publish(order, stream="s")  # accepted: one of a batch with contexts
    method.publish(order)  # accepted: a method
    await instance.apublish(order)  # accepted: an object
    await place(order, ctx)  # accepted: called directly
    send_receipt(order)  # accepted: called directly, def
    number: int = ring()  # accepted: what it returns
    await store([order])  # accepted: called directly, a batch
    print(sent.id.hex, again.duplicate, number, place.queue, place.type)


# --- Publishing ---------------------------------------------------------------------------------------------


def publishing(
    lite: sqlite3.Connection,
    pg: psycopg.Connection,
    session: Session,
    scoped: scoped_session[Session],
    engine: sqlalchemy.Engine,
) -> None:
    app.publish("order.placed")  # accepted: no body
    app.publish("order.placed", order, on=lite)  # accepted: sqlite3
    app.publish("order.placed", order, on=pg)  # accepted: psycopg
    app.publish("order.placed", order, on=session)  # accepted: SQLAlchemy, a session
    app.publish("order.placed", order, on=scoped)  # accepted: SQLAlchemy, a scoped session
    with engine.begin() as connection:
        app.publish("order.placed", order, on=connection)  # accepted: SQLAlchemy, a connection
    app.publish("order.placed", [1, "two", None], stream="s", event=True, expect=3)  # accepted: an event
    # Accepted: times.
    app.publish("order.placed", order, delay=timedelta(minutes=5), deadline=timedelta(hours=1))
    # Accepted: more times.
    app.publish("order.placed", order, at=datetime.now(UTC), queue="receipts", id=None)
    made: NewMessage = app.message("order.placed", order, dedupe="1", subject="s")  # accepted: a message
    answers: list[Published] = app.publish_many([made, app.message("a.b", 1)], on=lite)  # accepted: many
    app.publish_many(app.message("order.placed", {"id": each}) for each in range(3))  # accepted: a generator
    events: list[Event] = app.events("order-1", after=3)  # accepted: events
    print(answers[0].id, [each.version for each in events])


async def apublishing(
    lite: aiosqlite.Connection,
    pg: psycopg.AsyncConnection,
    session: AsyncSession,
    connection: AsyncConnection,
) -> None:
    await app.apublish("order.placed", order, on=lite)  # accepted: aiosqlite
    await app.apublish("order.placed", order, on=pg)  # accepted: psycopg, async
    # Accepted: SQLAlchemy, an async session.
    await app.apublish("order.placed", order, on=session, stream="order-1")
    await app.apublish("order.placed", order, on=connection)  # accepted: SQLAlchemy, an async connection
    published: Published = await app.apublish("order.placed", delay=3)  # accepted: without a handle
    many: list[Published] = await app.apublish_many([app.message("a.b", 1)])  # accepted: many
    print(published.id, len(many))


def passing_on(placed: Order, **options: Unpack[MessageOptions]) -> Published:
    return app.publish("order.placed", placed, **options)  # accepted: options passed on


# --- In a handler -------------------------------------------------------------------------------------------


def write(db: TransactionConnection, ctx: Context) -> None:  # accepted: a function of the connection
    db.execute("insert into ledger values (?, ?)", (str(ctx.id), 5))


@app.handler("money.received", steps=["charged"])
def book(payment: dict[str, int], ctx: Context) -> None:
    if not ctx.did("charged"):
        ctx.mark("charged")
    with ctx.transaction() as db:  # accepted: either database
        db.execute("insert into ledger values (?, ?)", (str(ctx.id), payment["cents"]))
        write(db, ctx)
    with ctx.transaction(sqlite3.Connection) as lite:  # accepted: SQLite
        lite.executemany("insert into ledger values (?)", [(1,), (2,)])
        write(lite, ctx)
    with ctx.transaction(psycopg.Connection) as pg, pg.cursor() as cursor:  # accepted: psycopg
        cursor.execute("select %s", (payment["cents"],))


@app.handler("money.sent")
async def abook(payment: dict[str, int], ctx: Context) -> None:
    async with ctx.transaction() as db:  # accepted: either database, async
        await db.execute("insert into ledger values (%s)", [payment["cents"]])
    async with ctx.transaction(psycopg.AsyncConnection) as pg:  # accepted: psycopg, async
        row = await (await pg.execute("select 1")).fetchone()
        print(row)
    async with ctx.transaction(sqlite3.Connection) as lite:  # accepted: SQLite, async
        print(lite.execute("select 1").fetchone())


@app.handler("money.lent")
async def lend(payment: dict[str, int], ctx: Context) -> None:
    with sqlite3.connect("shop.db") as db:
        ctx.complete(on=db)  # accepted: one's own transaction
    async with await psycopg.AsyncConnection.connect("") as pg:
        await ctx.acomplete(on=pg)  # accepted: one's own transaction, async
    done: bool = ctx.completed
    print(done, payment)


# --- Breakers, limits, alerts, hooks ------------------------------------------------------------------------

# Accepted: a breaker.
llm: Breaker = app.breaker("llm", window=10, cooldown=2.5, catch_up=None, counts=Exception)
rules: BreakerOptions = {"trials": 5, "opens_above": 0.3}
stt = app.breaker("stt", **rules)  # accepted: options as a value
smtp: SharedRate = app.rate("smtp", "100/s")  # accepted: a rate
places: SharedSlots = app.slots("smtp", 5)  # accepted: slots


@llm
def ask(question: str) -> str:  # accepted: a decorator
    return question.upper()


async def calling() -> None:
    answer: str = ask("why?")
    with contextlib.suppress(CircuitOpen), llm:  # accepted: a block
        answer += llm.call(ask, question="why?")  # accepted: a call
    async with stt:  # accepted: an async block
        print(answer)


@app.on_alert
async def page(alert: Alert) -> None:  # accepted: a listener
    print(alert.text, alert.what == "raised")


@app.on_dead_letter
def ticket(letter: DeadLetter) -> None:  # accepted: a hook
    print(letter.id, letter.reason.name, letter.failure)


@app.on_dead_letter
async def aticket(letter: DeadLetter, ctx: Context) -> None:  # accepted: a hook with a context
    ctx.publish("ticket.opened", {"letter": str(letter.id)})


# --- Working, testing, operating ----------------------------------------------------------------------------


async def working() -> None:
    async with app.running(queues=["place"], name="web-1") as running:  # accepted: inside an application
        embedded: Running = running
        health: Health = embedded.health
        worker: Worker = embedded.worker
        print(health.is_ready, worker.number)
    await app.worker(until_idle=True).run()  # accepted: a worker


def by_hand() -> None:
    batch: Batch = app.process_work_batch(want={"receipts": 10}, lease=30, wait=1.0)  # accepted: an exchange
    settlements: list[Settlement] = []
    for leased in batch.work:
        settlements.append(app.done(leased, app.message("order.confirmed")))  # accepted: done
        settlements.append(app.failed(leased, Flag.STORED, ValueError("no")))  # accepted: failed
        # Accepted: a reason.
        settlements.append(app.failed(leased, 0, "no", reason=Reason.DEPENDENCY_FAILURE))
        settlements.append(app.give_back(leased, delay=3, refund=False))  # accepted: given back
    app.process_work_batch(settlements)


def test_receipt() -> None:
    with app.testing() as t:  # accepted: a test
        drained: Drained = t
        app.publish("order.placed", order)
        drained.drain()
        done: int = t.drain(raises=False).done  # accepted: the summary
        names: list[str] = [each.type for each in t.published("order.placed")]  # accepted: what was published
        reasons = [each.reason for each in t.dead]  # accepted: dead letters
        t.advance(minutes=5, seconds=0.5)  # accepted: the clock


def operating(counts: Mapping[str, int]) -> None:
    operations: Operations = app.operations.by("anna")  # accepted: operations
    status: Status = operations.status()  # accepted: at a glance
    letters: Sequence[Letter] = operations.dead.list(limit=10)  # accepted: dead letters
    operations.messages.retry(letters[0].id)  # accepted: an order
    why: list[str] = operations.why(str(letters[0].id))  # accepted: why
    print(status.depth, why, app.metrics_text(), counts)


# --- Orchestrations -----------------------------------------------------------------------------------------


@dataclass
class Receipt:
    cents: int


@activity(errors={"KeyError": KeyError})
async def charge(order: Order) -> Receipt:  # accepted: an activity
    return Receipt(1)


@activity()
def weigh(order: Order, ctx: Context) -> float:  # accepted: an activity with a context, `def`
    return 1.5


@activity()
async def tick() -> None:  # accepted: an activity without a value
    pass


@orchestration(version="2")
async def fulfil(order: Order, flow: Flow) -> Receipt:  # accepted: an orchestration
    async with flow.saga() as undo:
        receipt: Receipt = await charge(order)  # accepted: its result has its type
        undo(charge, order)  # accepted: to be undone
        weight: float = await weigh(order)  # accepted: without the context
        await tick()
        # Accepted: other options.
        patient: Activity[[Order], Receipt] = charge.using(retry="patient", timeout=5)
        receipt = await patient(order)
        receipt = await charge.using(inline=True)(order)  # accepted: inside the turn
        receipt = await charge.using(inline="turn")(order)  # accepted: recorded with the turn
        async with asyncio.timeout(60):
            word: str = await flow.signal("approved", str)  # accepted: a signal
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(charge(each)) for each in [order]]  # accepted: in tasks
        both: tuple[Receipt, float] = await asyncio.gather(charge(order), weigh(order))  # accepted: gather
        sent: First[Receipt] = await flow.first(a=charge(order), b=patient(order))  # accepted: first
        many: list[float] = await flow.map(weigh, [order], at_once=10)  # accepted: map
        drawn: int = flow.once(lambda: 3)  # accepted: once
        flow.status = {"word": word, "random": flow.random.random(), "new": flow.patched("x")}
        flow.log.info("at %s", flow.now)
    print(receipt, weight, tasks[0].result().cents, both, sent.value.cents, many, drawn)
    return receipt


@orchestration()
async def nightly(flow: Flow) -> int:  # accepted: without a value
    try:
        receipt: Receipt = await fulfil.using(id="own")(order)  # accepted: a child
    except ActivityFailed as error:
        print(error.reason, error.category, error.error.text, error.message_id)
        flow.again()  # accepted: continue as new
    fulfil.start(order)  # accepted: detached
    return receipt.cents


async def outside() -> None:
    receipt: Receipt = await charge(order)  # accepted: outside it is the function
    print(receipt)


@app.around_call
@contextlib.contextmanager
def session_of_the_call() -> Generator[None, None, None]:  # accepted: around each call
    yield


@app.handler("order.placed", name="send_receipt", renamed_from="receipt")  # accepted: renamed
async def renamed(order: Order) -> None: ...


careful = Holdfast("sqlite:///shop.db", require_on=True)  # accepted: on= is never forgotten


@app.activity(inline="turn")  # accepted: inside the turn
async def price(order: Order) -> int:
    return 1


@app.activity(on_dead="wait")  # accepted: its instance waits for a redrive
async def repaired(order: Order) -> float:
    return 1.0


@app.activity(retry="api", timeout=5.0, returns={"ValueError": ValueError})  # accepted: on an application
async def pay(order: Order) -> Receipt:
    return Receipt(1)


@app.activity()
def measure(order: Order, ctx: Context) -> int:  # accepted: with a context, in a thread
    ctx.answer(1)
    return 1


@app.orchestration(version="2", max_attempts=3)
async def deliver(order: Order, flow: Flow) -> Receipt:
    grams: int = await measure(order)
    flow.status = {"grams": grams}
    return await pay(order)


started: str = app.orchestrations.start(deliver, order, id="order-1", on=None)
app.orchestrations.signal(started, "approved", {"by": "Ann"})
# Accepted.
app.orchestrations.start(deliver, order, attributes={"customer": "17"}, deadline=timedelta(days=1))
app.orchestrations.cancel(started, "changed my mind")
print(app.orchestrations.status(started).state, app.orchestrations.result(started, timeout=1.0))

from_file: Holdfast = Holdfast.from_config("holdfast.toml", lease=60.0)
print(
    [each.state for each in app.operations.destinations.list()],
    app.operations.inboxes.test("billing").is_usable,
)

# Accepted.
app.schedule("nightly", daily("02:30", zone="Europe/Berlin"), "report.due", {"kind": 1}, misfire="latest")
planned: Planned = app.set_schedule("birthday/1", yearly("03-14", "09:00"), "birthday.due", cap=None, on=None)
dropped: bool = app.drop_schedule(planned.name)
moved: datetime = app.move(uuid4(), at=datetime.now(UTC))
app.cancel(uuid4(), on=None)


@app.handler("birthday.due")
def greets(body: Order, ctx: Context) -> None:
    if ctx.occurrence is not None:
        print(ctx.occurrence.local, ctx.occurrence.at.isoformat())


grading = app.request_kind("grading", sla={"writing": 1200, "speaking": timedelta(hours=1)}, soft=0.75)
paying = app.request_kind(
    "paying", sla=60, takes=Order, gives=Receipt, answer=lambda body: Answer(body["id"])
)


@grading.completed
def marked(request: Request[Any, Any], ctx: Context) -> None:  # accepted: with a context
    print(request.result["score"], request.late, ctx.id)


@paying.completed
async def paid(request: Request[Order, Receipt]) -> None:
    receipt: Receipt = request.result
    print(request.body, receipt)


@paying.failed(retry="api", timeout=5.0)
def unpaid(request: Request[Order, Receipt | None]) -> None:  # accepted: with options
    print(request.reason, request.timed_out_at)


asked: Asked = app.request(grading, {"n": 1}, variant="writing", send="grading.request", subject="s", on=None)
app.request(paying, order, within=timedelta(minutes=5))
resolution: Resolved = app.resolve(asked.id, {"score": 7}, on=None)
app.resolve(str(asked.id), failed="no")
until: datetime = app.requests.extend(asked.id, 60)
app.requests.cancel(asked.id, "no longer")
print(app.requests.get(asked.id).state, app.operations.requests.accept(asked.id, why="good"))
