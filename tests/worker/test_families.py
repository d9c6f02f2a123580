"""One handler for every queue of a family: found when they have work, served in turn, each behind its own limits."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import Context, Holdfast
from holdfast.errors import InvalidSettings
from tests.worker.lab import Lab, auntil, settled


async def test_a_handler_serves_its_family(lab: Lab) -> None:
    app, seen = lab.app(), list[tuple[str, int]]()

    @app.handler("order.*", family="customers")
    async def handle(body: dict, ctx: Context) -> None:
        seen.append((ctx.queue, body["n"]))

    @app.handler("order.placed")
    async def customers0(body: dict) -> None:
        seen.append(("customers0", body["n"]))

    app.publish("order.placed", {"n": 0})  # to whoever has subscribed
    for n in range(1, 41):
        app.publish("order.placed", {"n": n}, queue=f"customers/{n % 8}", stream="s")
    async with lab.working(app):
        await settled(lab)
        await app.apublish("order.placed", {"n": 41}, queue="customers/new")
        await settled(lab)
        (worker,) = await asyncio.to_thread(lambda: lab.operations.status().workers)
        assert {"customers", "customers/*", "customers0"} == set(worker.queues)
        queue = await asyncio.to_thread(lab.operations.queues.state, "customers/3")
        assert queue is None or queue.workers
    assert Counter(seen) == Counter(
        [("customers", 0), ("customers0", 0), ("customers/new", 41)]
        + [(f"customers/{n % 8}", n) for n in range(1, 41)]
    )
    for queue in {queue for queue, _ in seen}:
        its = [n for name, n in seen if name == queue]
        assert its == sorted(its)
    assert {row.outcome for row in lab.rows("history")} == {"done"}


@pytest.mark.parametrize("batch", [0, 5])
async def test_a_full_queue_does_not_keep_the_others_waiting(lab: Lab, batch: int) -> None:
    app, seen = lab.app(), list[str]()

    async def handle(body: dict, ctx: Context) -> None:
        seen.append(ctx.queue)
        await asyncio.sleep(0.002)

    async def handle_many(bodies: list[dict], ctx: list[Context]) -> None:
        assert len({each.queue for each in ctx}) == 1
        seen.extend(each.queue for each in ctx)
        await asyncio.sleep(0.006)  # else the full queue is over before a busy machine has looked

    if batch:
        app.handler("a", family="customers", concurrency=1, batch=batch)(handle_many)
    else:
        app.handler("a", family="customers", concurrency=2)(handle)
    app.publish_many(app.message("a", {}, queue="customers/big") for _ in range(1500))
    async with lab.working(app):
        await auntil(lambda: len(seen) > 20, lab.describe)
        for n in range(20):
            await app.apublish("a", {}, queue=f"customers/{n}")
        before = len(seen)
        await settled(lab)
    # By the order of the calls, not by when somebody looked: a busy machine looks late.
    assert max(seen.index(f"customers/{n}") for n in range(20)) - before < 1000
    assert Counter(seen) == {"customers/big": 1500, **{f"customers/{n}": 1 for n in range(20)}}


async def test_a_queue_of_a_family_is_paused_alone(lab: Lab) -> None:
    app, seen = lab.app(), list[str]()

    @app.handler("a", family="customers")
    async def handle(body: dict, ctx: Context) -> None:
        seen.append(ctx.queue)

    app.publish("a", {}, queue="customers/1")
    await asyncio.to_thread(lab.operations.queues.pause, "customers/1", "asked to")
    async with lab.working(app):
        for n in range(2, 5):
            await app.apublish("a", {}, queue=f"customers/{n}")
        await auntil(lambda: len(seen) == 3, lab.describe)
        assert "customers/1" not in seen
        await asyncio.to_thread(lab.operations.queues.resume, "customers/1")
        await auntil(lambda: "customers/1" in seen, lab.describe)


def states(lab: Lab) -> dict[str, str]:
    return {row.name: row.state for row in lab.rows("breaker")}


async def test_each_queue_of_a_family_has_its_own_breaker_rate_and_slots(lab: Lab) -> None:
    app, seen = lab.app(), list[str]()

    @app.handler(
        "a", family="hooks", breaker="hook-*", rate="1000/s", cluster_concurrency=2, catch_up="500/s",
    )  # fmt: skip
    async def handle(body: dict, ctx: Context) -> None:
        if ctx.queue == "hooks/broken":
            raise ConnectionError("nobody answers")
        seen.append(ctx.queue)

    consumer = app.handlers["hooks/fine"]
    assert consumer is app.handlers["hooks"]
    limits = consumer.limits("hooks/fine")
    assert limits.breaker is not None
    assert limits.rate is not None
    assert limits.slots is not None
    assert (limits.breaker.name, limits.rate.name, limits.slots.name) == (
        "hook-fine", "queue/hooks/fine", "queue/hooks/fine",
    )  # fmt: skip
    app.publish_many(app.message("a", {}, queue="hooks/broken") for _ in range(40))
    async with lab.working(app):
        await auntil(lambda: states(lab).get("hook-broken") == "open", lab.describe)
        app.publish_many(app.message("a", {}, queue="hooks/fine") for _ in range(40))
        await auntil(lambda: seen.count("hooks/fine") == 40, lab.describe)
        assert states(lab).get("hook-fine", "closed") == "closed"
        started = sum(row.attempts for row in lab.rows("message"))
    assert started < 200  # an open breaker keeps its queue where it is
    assert len(lab.rows("message")) == 40


async def test_a_suspect_of_a_family_comes_alone_to_a_worker_inside_an_application(lab: Lab) -> None:
    app, seen = lab.app(lease=1.0, heartbeat=0.3), list[int]()

    @app.handler("a", family="customers", retry="brisk")
    async def handle(body: dict, ctx: Context) -> None:
        seen.append(ctx.attempt)

    app.publish("a", {}, queue="customers/1")
    (leased,) = app.process_work_batch(want={"customers/1": 1}, lease=0.2).work
    assert leased.message.queue == "customers/1"
    async with lab.working(app):
        await auntil(lambda: seen == [2], lab.describe)
        await settled(lab)


async def test_until_idle_sees_every_queue_of_a_family(lab: Lab) -> None:
    app, seen = lab.app(), list[str]()

    @app.handler("a", family="customers")
    async def handle(body: dict, ctx: Context) -> None:
        seen.append(ctx.queue)
        if len(seen) == 1:
            ctx.publish("a", {}, queue="customers/later")

    app.publish_many(app.message("a", {}, queue=f"customers/{n}") for n in range(300))
    app.publish("a", {}, queue="customers/tomorrow", delay=86_400)
    await asyncio.wait_for(app.worker(until_idle=True).run(), 60)
    assert len(seen) == len(set(seen)) == 301


@pytest.mark.one_postgres
def test_names_of_queues_keep_families_and_versions_apart() -> None:
    app = Holdfast("sqlite:///:memory:")

    @app.handler("a", name="orders/big")
    def big(body: dict) -> None: ...

    with pytest.raises(InvalidSettings, match="kept for the versions of orchestrations"):
        app.handler("a", name="fulfil@2")(lambda body: None)
    with pytest.raises(InvalidSettings, match="kept for the versions of orchestrations"):
        app.publish("a", {}, queue="fulfil@2")
    with pytest.raises(InvalidSettings, match="would take the queue of the handler 'orders/big'"):
        app.handler("a", family="orders")(lambda body: None)
    app.handler("a", family="customers")(lambda body: None)
    for wrong in ({"name": "customers/17"}, {"family": "customers/vip"}):
        with pytest.raises(InvalidSettings, match="belongs to the family 'customers'"):
            app.handler("a", **wrong)(lambda body: None)
    with pytest.raises(InvalidSettings, match="a name or a family, not both"):
        app.handler("a", family="x", name="y")(lambda body: None)
    with pytest.raises(InvalidSettings, match="keep the order of streams"):
        app.handler("a", family="x", ordered=False)(lambda body: None)
    app.close()
