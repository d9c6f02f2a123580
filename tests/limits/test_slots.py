"""At most so many at once over all workers, on both databases: shared, crash-safe, and not a write per message."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.clock import MovableClock
from holdfast.errors import InvalidSettings, StoreUnavailable
from holdfast.limits.gate import Gate
from holdfast.model.limits import SharedSlots
from holdfast.rules.lanes import Limit, Pace
from holdfast.rules.slots import Holder, share
from holdfast.store.plans import engine, slots
from holdfast.store.plans.slots import Holders
from holdfast.store.statement import Plan, Runnable, Statement
from tests.worker.lab import Lab, auntil, settled, until


class Gauge:
    """How many run at once, and how many did at most."""

    def __init__(self) -> None:
        self.now = self.most = self.count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.count += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def writes(lab: Lab, name: str) -> int:
    """How often the row of the holders was written."""
    return lab.store.run(slots.look(name)).version


def holders(lab: Lab, name: str) -> list[Any]:
    return lab.store.run(slots.look(name)).holders


@pytest.mark.parametrize("is_async", [True, False])
async def test_three_workers_run_as_many_at_once_as_allowed_and_no_more(lab: Lab, is_async: bool) -> None:
    gauge, apps = Gauge(), [lab.app() for _ in range(3)]
    for app in apps:
        if is_async:

            @app.handler("a", name="many", cluster_concurrency=4)
            async def many(body: dict) -> None:
                with gauge:
                    await asyncio.sleep(0.01)
        else:

            @app.handler("a", name="many", cluster_concurrency=4)
            def many_blocking(body: dict) -> None:
                with gauge:
                    time.sleep(0.01)

    apps[0].publish_many(apps[0].message("a", {"n": n}) for n in range(200))
    async with lab.working(apps[0]), lab.working(apps[1]), lab.working(apps[2]):
        await settled(lab)
    assert (gauge.count, gauge.most) == (200, 4)
    assert writes(lab, "queue/many") < 40, "not a write per message"
    assert apps[0].operations.breakers.list() == [], "slots are no breakers"


@pytest.mark.parametrize("gap", range(3))
def test_a_worker_that_begins_while_another_one_asks_is_not_taken_for_dead(lab: Lab, gap: int) -> None:
    """Between any two statements of the first one's question the second registers, and takes its slots."""
    got: dict[int, int] = {}
    plan, answer, asked = lab.store.bound(taking(register(lab, "first"), got)), None, 0

    def only(statement: Statement) -> Plan[Any]:
        return (yield statement)

    while True:
        try:
            statement = plan.send(answer)
        except StopIteration:
            break
        if asked == gap:
            lab.store.run(taking(register(lab, "second"), got))
        answer = lab.store.run(only(statement))
        asked += 1
    assert sum(got.values()) == 3


def register(lab: Lab, name: str) -> int:
    return lab.store.run(engine.register_worker(name, ["many"]))


def taking(worker: int, got: dict[int, int]) -> Runnable[bool]:
    """All of three slots that it can get."""

    def decide(found: Holders, ages: Mapping[int, float]) -> Holders:
        mine = share([Holder(*each) for each in found], ages, Holder(worker, 0, 30.0, ("many",)), 3, 3)
        got[worker] = mine.held
        return [(each.worker, each.held, each.lease, each.queues) for each in mine.holders]

    return slots.change("queue/many", decide)


async def test_while_a_question_is_on_its_way_no_more_begin_than_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the question may be all that the answer leaves: others may have the rest before it comes."""
    many, clock, allowed = Pace(Limit(4)), MovableClock(), []
    gate = Gate(lab.store, clock, {"many": many})
    gate.meet("many", slots=SharedSlots("queue/many", 4))
    await gate.begin(register(lab, "first"), ["many"])
    for many.running in (0, 1, 2):
        await gate.look()
    assert gate.at_once("many", clock.monotonic()) == 4
    arun = lab.store.arun

    async def asked(*arguments: Any, **options: Any) -> Any:
        allowed.append(gate.at_once("many", clock.monotonic()))
        return await arun(*arguments, **options)

    monkeypatch.setattr(lab.store, "arun", asked)
    clock.advance(seconds=1)
    many.running = 1
    await gate.look()
    assert (allowed, gate.at_once("many", clock.monotonic())) == ([1], 4)


async def test_a_question_without_an_answer_is_asked_again_ever_more_rarely(lab: Lab) -> None:
    clock, asked = MovableClock(), 0
    gate = Gate(lab.store, clock, {"many": Pace(Limit(4))})
    gate.meet("many", slots=SharedSlots("queue/many", 4))
    await gate.begin(register(lab, "first"), ["many"])

    async def away(*_: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        raise StoreUnavailable("gone")

    await gate.look()
    assert gate.at_once("many", clock.monotonic()) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab.store, "arun", away)
        for _ in range(1000):
            clock.advance(seconds=0.01)
            await gate.look()
    assert asked < 20, "in ten seconds"
    clock.advance(seconds=1)
    await gate.look()
    assert gate.at_once("many", clock.monotonic()) == 1


async def test_handlers_share_the_slots_of_a_destination_and_each_gets_its_part(lab: Lab) -> None:
    """One worker drains `mail`, another one `sms`, both through the same gateway, which bears two at once."""
    gauge, mail, sms = Gauge(), lab.app(), lab.app()
    sent: list[str] = []

    def declare(app: Holdfast, type: str) -> None:
        @app.handler(type, name=type, cluster_concurrency=app.slots("gateway", 2))
        async def send(body: dict) -> None:
            with gauge:
                sent.append(type)
                await asyncio.sleep(0.01)

    declare(mail, "mail")
    declare(sms, "sms")
    for app, type in ((mail, "mail"), (sms, "sms")):
        app.prepare()
        app.publish_many(app.message(type, {"n": n}) for n in range(400))
    async with lab.working(mail), lab.working(sms):
        await auntil(lambda: {"mail", "sms"} <= set(sent), lab.describe)
        first = sent[0]
        await settled(lab)
    assert gauge.most == 2
    other = {"mail": "sms", "sms": "mail"}[first]
    assert sent.index(other) < 399, "the second does not wait for the whole backlog of the first"


async def test_streams_use_one_slot_each_and_keep_their_order(lab: Lab) -> None:
    gauge, app, seen = Gauge(), lab.app(), []

    @app.handler("a", cluster_concurrency=2)
    async def ordered(body: dict) -> None:
        with gauge:
            seen.append((body["s"], body["n"]))
            await asyncio.sleep(0)

    app.publish_many(app.message("a", {"s": s, "n": n}, stream=s) for n in range(20) for s in "abcde")
    async with lab.working(app):
        await settled(lab)
    assert gauge.most <= 2
    for stream in "abcde":
        assert [n for s, n in seen if s == stream] == list(range(20))


async def test_so_many_at_once_for_one_key_is_so_many_streams_for_it(lab: Lab) -> None:
    """The recipe of docs/breakers.md: no key has more than two at once, on any number of workers."""
    gauges, apps = {key: Gauge() for key in "xy"}, [lab.app() for _ in range(2)]
    for app in apps:

        @app.handler("a", name="tenant")
        async def tenant(body: dict) -> None:
            with gauges[body["key"]]:
                await asyncio.sleep(0.005)

    apps[0].publish_many(
        apps[0].message("a", {"key": key}, stream=f"{key}/{n % 2}") for n in range(40) for key in "xy"
    )
    async with lab.working(apps[0]), lab.working(apps[1]):
        await settled(lab)
    assert {key: gauge.most for key, gauge in gauges.items()} == {"x": 2, "y": 2}


@pytest.mark.alone
async def test_suspects_need_a_slot_too_and_a_worker_that_stops_leaves_its_slots(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a", name="many", cluster_concurrency=1)
    async def many(body: dict, ctx: Context) -> None:
        seen.append(body["n"])

    app.publish_many(app.message("a", {"n": n}) for n in range(5))
    async with lab.working(app):
        await settled(lab)
        assert [each[1] for each in holders(lab, "queue/many")] == [1]
    begun = time.monotonic()
    app.publish("a", {"n": 5})
    async with lab.working(app):
        await settled(lab)
    assert time.monotonic() - begun < 5, "the slot of the worker that left was free at once"
    assert sorted(seen) == list(range(6))


@pytest.mark.alone
def test_slots_of_a_process_that_dies_are_not_lost(lab: Lab) -> None:
    """Killed with everybody who could tell: its slots lapse with its lease. Told by the supervisor: at once."""
    options = {"cluster_concurrency": 2}
    lab.publish(*({"n": n, "reach": f"reached-{n}", "until": "go"} for n in range(4)))
    first = lab.start(settings={"lease": 2.0, "heartbeat": 0.5}, options=options)
    for n in range(2):
        lab.reached(f"reached-{n}")
    time.sleep(0.5)
    assert not (lab.folder / "reached-2").exists(), "two at once"
    os.kill(first.children()[0], signal.SIGKILL)
    begun = time.monotonic()
    until(lambda: len(lab.starts()) >= 3, lab.describe)
    assert time.monotonic() - begun < 10
    first.kill_all()
    lab.signal("go")
    lab.start(settings={"lease": 2.0, "heartbeat": 0.5}, options=options)
    lab.until_empty()
    assert lab.rows("dead") == []
    assert sum(row.outcome == "done" for row in lab.rows("history")) == 4


async def test_a_worker_takes_no_more_slots_than_it_can_use(lab: Lab) -> None:
    """Two workers with one handler each: neither hoards the slot of the other."""
    gauge, apps = Gauge(), [lab.app() for _ in range(2)]
    for app in apps:

        @app.handler("a", name="many", cluster_concurrency=2, concurrency=1)
        async def many(body: dict) -> None:
            with gauge:
                await asyncio.sleep(0.01)

    apps[0].publish_many(apps[0].message("a", {"n": n}) for n in range(100))
    async with lab.working(apps[0]), lab.working(apps[1]):
        await settled(lab)
    assert gauge.most == 2


@pytest.mark.covers("X39")
def test_the_quarantine_gets_a_slot_while_the_others_are_busy(lab: Lab) -> None:
    lab.publish({"n": "killer", "act": "kill"}, *({"n": n, "seconds": 0.1} for n in range(600)))
    lab.start(starts_max=2, settings={"lease": 4.0, "heartbeat": 1.0}, options={"cluster_concurrency": 1})
    until(lambda: len(lab.rows("dead")) == 1, lab.describe)
    assert len(lab.rows("message")) > 10, "it did not wait until there was nothing else"
    lab.signal("hurry")
    assert [attempt for n, attempt, _ in lab.starts() if n == "killer"] == [1, 2]
    lab.until_empty()


@pytest.mark.parametrize("seed", range(3))
def test_draining_handles_all_that_the_limits_let_through(sqlite_lab: Lab, seed: int) -> None:
    """A rate, slots and a catch-up in one worker: a look at one of them does not end the drain for another."""
    app, seen = sqlite_lab.app(), []

    @app.handler("a", cluster_concurrency=2, catch_up="100/s")
    def first(n: int) -> None:
        seen.append(n)

    @app.handler("b", cluster_concurrency=app.slots("gateway", 1), rate="100/s")
    async def second(n: int) -> None:
        seen.append(n)

    with app.testing() as t:
        for n in range(30):
            app.publish("a", n)
            app.publish("b", n)
        t.drain(raises=False)
        assert len(seen) == 60
        t.advance(hours=1)
        app.publish("a", 1)
        app.publish("b", 1)
        t.drain(raises=False)
        assert len(seen) == 62


@pytest.mark.parametrize("count", [0, -1, True, "5"])
def test_a_limit_that_cannot_work_is_refused_where_it_is_declared(sqlite_lab: Lab, count: Any) -> None:
    app = sqlite_lab.app()
    with pytest.raises(InvalidSettings, match="Handler 'many': cluster_concurrency"):

        @app.handler("a", cluster_concurrency=count)
        async def many(body: dict) -> None: ...

    with pytest.raises(InvalidSettings, match="Slots 'smtp'"):
        app.slots("smtp", count)
    with pytest.raises(InvalidSettings, match="holdfast/"):
        app.slots("holdfast/smtp", 1)
