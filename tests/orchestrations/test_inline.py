"""Inline activities on the real engine, on both databases: run inside the turn, recorded before the next one starts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import (
    ActivityFailed,
    Context,
    Dead,
    Flow,
    InvalidSettings,
    OrchestrationFailed,
    RetryPolicy,
    Snooze,
)
from holdfast.bodies.keys import new_key
from holdfast.model.work import Leased, Report, Want
from holdfast.operations.dead import Filter
from holdfast.orchestrations import inline as inline_module
from holdfast.orchestrations.parts import Parts
from holdfast.rules.delivery import Unsent
from holdfast.store.connecting_postgres import execute
from holdfast.store.plans import engine, instances
from holdfast.store.plans.instances import Part
from holdfast.store.statement import drive
from holdfast.telemetry.sheet import Sheet
from tests.orchestrations.shop import Shop
from tests.store.state import check_invariants

THRICE = RetryPolicy(attempts_max=3, base=60.0, factor=1.0, cap=60.0, jitter=0.0)


class Ran:
    """A call of a worker that nobody waits for."""

    def __call__(self) -> float:
        return 0.0

    def began(self, run: Any) -> None: ...
    def over(self, run: Any) -> None: ...

    def in_thread(self, function: Any) -> Any:
        return asyncio.to_thread(function)


class Kitchen(Shop):
    """A shop with inline activities that count their calls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fails = 0  # the first so many calls of `fragile` fail
        app = self.app

        self.stands_at: int | None = None  # the call of `add` that does not go on until it is told to
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()

        @app.activity(inline=True)
        async def add(n: int) -> int:
            self.did.append(n)
            if n == self.stands_at:
                self.reached.set()
                await self.goes_on.wait()
            return n + 1

        @app.activity(inline="turn")
        async def quick(n: int) -> int:
            self.did.append(n)
            return n + 1

        @app.activity(inline=True)
        def blocking(n: int) -> str:
            self.did.append(n)
            return threading.current_thread().name

        @app.activity(inline=True, retry=THRICE)
        async def fragile(n: int, ctx: Context) -> int:
            self.did.append((n, ctx.attempt, ctx.idempotency_key))
            if len(self.did) <= self.fails:
                raise ConnectionError("no")
            return n

        @app.orchestration()
        async def chain(n: int) -> int:
            for _ in range(5):
                n = await add(n)
            return n

        self.add, self.quick, self.blocking, self.fragile, self.chain = add, quick, blocking, fragile, chain

    def drain(self, *queues: str) -> None:
        """Also what a suspect leaves behind: it is handed out alone, when all else is done."""
        for _ in range(1 if queues else 2):
            super().drain(*queues)

    def claim(self, queue: str) -> Leased:
        """Another worker takes the next message of a queue."""
        self.app.prepare()
        suspects = bool(self.app.store.run(engine.suspects_wait([queue])))
        asked = Report(4711, want=[Want(queue, 1)], total=1, suspects=suspects)
        (leased,) = self.app.store.run(engine.exchange(asked)).work
        return leased

    async def half(self, leased: Leased) -> asyncio.Task[Any]:
        """It begins its turn, and stands in the middle of an activity."""
        queue = leased.message.queue
        (later,) = await self.app.handlers[queue].call_runs(queue, [[leased]], Ran())
        task = asyncio.create_task(later.endings())
        await self.reached.wait()
        return task

    def crash(self, queue: str) -> None:
        """A worker takes the next message, dies in the middle of an activity, and is found dead."""

        async def dies() -> int:
            self.reached, self.goes_on = asyncio.Event(), asyncio.Event()
            leased = self.claim(queue)
            task = await self.half(leased)
            task.cancel()
            await asyncio.wait([task])
            await self.app.store.aclose()
            return leased.message.seq

        seq = asyncio.run(dies())
        self.forget()
        self.app.store.run(engine.recover(worker=4711, running=[seq]))
        self.stands_at = None
        self.did.append("crash")

    def rows(self, id: str) -> list[tuple[int, int, dict[str, Any]]]:
        found = self.query(
            f"select turn, part, body from {self.prefix}journal where id = '{id}' order by turn, part"
        )
        return [(turn, part, json.loads(body)) for turn, part, body in found]


@pytest.fixture
def shop(url: str) -> Iterator[Kitchen]:
    made = Kitchen(url)
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


# --- Recording


@pytest.mark.covers("X58")
def test_each_result_is_a_part_of_the_turn(shop: Kitchen) -> None:
    shop.of.start(shop.chain, 1, id="c")
    shop.drain()
    assert shop.of.result("c") == 6
    assert shop.did == [1, 2, 3, 4, 5]
    rows = shop.rows("c")
    assert [(turn, part, body.get("final", True)) for turn, part, body in rows] == [
        (1, 0, False), (1, 1, False), (1, 2, False), (1, 3, False), (1, 4, True),
    ]  # fmt: skip
    assert rows[1][2]["entries"][0][1][0][:2] == ["inline", "add"]
    assert shop.of.status("c").turn == 1
    assert shop.query(f"select count(*) from {shop.prefix}history where queue = 'add'") == [(0,)]


def test_recorded_with_the_turn_it_is_one_row(shop: Kitchen) -> None:
    @shop.app.orchestration()
    async def fast(n: int) -> int:
        for _ in range(5):
            n = await shop.quick(n)
        return n

    shop.of.start(fast, 1, id="f")
    shop.drain()
    assert shop.of.result("f") == 6
    assert [row[:2] for row in shop.rows("f")] == [(1, 0)]


def test_instances_share_commits(shop: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    plain = instances.store_parts
    monkeypatch.setattr(instances, "store_parts", lambda parts: batches.append(len(parts)) or plain(parts))
    for n in range(20):
        shop.of.start(shop.chain, 10 * n, id=f"c{n}")
    shop.drain()
    assert [shop.of.result(f"c{n}") for n in range(20)] == [10 * n + 5 for n in range(20)]
    assert sum(batches) == 20 * 4, "the last result of each is stored with its turn"
    assert len(batches) <= 16, "twenty instances, and hardly more commits than for one"


def test_completions_are_recorded_in_the_order_in_which_the_code_got_them(shop: Kitchen) -> None:
    @shop.app.activity(inline=True)
    async def wait(ticks: int) -> int:
        for _ in range(ticks):
            await asyncio.sleep(0)
        return ticks

    @shop.app.orchestration()
    async def race(flow: Flow) -> list[int]:
        seen: list[int] = []

        async def one(ticks: int) -> None:
            seen.append(await wait(ticks))

        async with asyncio.TaskGroup() as group:
            for ticks in (60, 5, 30):
                group.create_task(one(ticks))
        return seen

    shop.of.start(race, id="r")
    shop.drain()
    assert shop.of.result("r") == [5, 30, 60]
    assert shop.app.operations.orchestrations.check().unfit == ()
    entries = [entry for *_, body in shop.rows("r") for entry in body["entries"]]
    assert [arrival[3:5] for arrival, *_ in entries[1:]] == [[0, 2], [0, 3], [0, 1]]


def test_a_def_runs_in_a_thread_of_the_worker(shop: Kitchen) -> None:
    @shop.app.orchestration()
    async def mixed(n: int) -> list[str]:
        return list(await asyncio.gather(shop.blocking(n), shop.blocking(n + 1)))

    shop.of.start(mixed, 1, id="m")
    shop.drain()
    assert all(name.startswith("holdfast-handler") for name in shop.of.result("m"))
    assert sorted(shop.did) == [1, 2]


# --- Failing


def test_a_failure_waits_for_a_durable_timer_and_then_arrives(shop: Kitchen) -> None:
    @shop.app.orchestration()
    async def careful(n: int) -> Any:
        try:
            return await shop.fragile(n)
        except ActivityFailed as error:
            return [error.category, error.error.type]

    shop.fails = 2
    shop.of.start(careful, 7, id="good")
    shop.drain()
    assert [did[1] for did in shop.did] == [1]
    assert shop.rows("good")[-1][2]["tried"][0][:2] == [1, 1]
    (why,) = [each for each in shop.app.operations.why("good") if "fragile#1" in each]
    assert "runs inline and has failed 1 time: its next attempt is due at" in why
    shop.forget()
    shop.drain()
    assert len(shop.did) == 1, "it waits"
    shop.advance(seconds=61)
    shop.forget()
    shop.advance(seconds=61)
    assert shop.of.result("good") == 7
    assert [did[1] for did in shop.did] == [1, 2, 3]
    assert len({did[2] for did in shop.did}) == 1, "one idempotency key for all attempts"
    shop.did.clear()
    shop.fails = 3
    shop.of.start(careful, 8, id="bad")
    shop.drain()
    shop.advance(seconds=61)
    shop.advance(seconds=61)
    assert shop.of.result("bad") == ["infrastructure", "ConnectionError"]
    assert [did[1] for did in shop.did] == [1, 2, 3]


def test_wishes_timeouts_and_what_has_no_message(shop: Kitchen) -> None:
    asked: list[str] = []

    @shop.app.activity(inline=True)
    async def wish(what: str, ctx: Context) -> str:
        asked.append(what)
        match what:
            case "dead":
                raise Dead("no such customer")
            case "snooze":
                return what if asked.count("snooze") > 2 else Snooze(minutes=1)  # type: ignore[return-value]
            case "transaction":
                async with ctx.transaction():
                    pass
            case "publish":
                ctx.publish("order.placed")
            case "unwritable":
                return object()  # type: ignore[return-value]
        return what

    @shop.app.activity(inline=True, timeout=0.05, retry=RetryPolicy(attempts_max=1))
    async def slow(n: int) -> None:
        await asyncio.sleep(60)

    @shop.app.activity(inline=True, timeout=0.05, retry=RetryPolicy(attempts_max=1))
    def stuck(n: int) -> None:
        shop.thread.wait(20)

    shop.thread = threading.Event()

    @shop.app.orchestration()
    async def wishes(what: str) -> list[str]:
        told: list[str] = []
        once = wish.using(retry=RetryPolicy(attempts_max=1))
        calls = {"slow": slow(1), "stuck": stuck(1)} if what == "slow" else {what: once(what)}
        for name, call in calls.items():
            try:
                told.append(f"{name} {await call}")
            except ActivityFailed as error:
                told.append(f"{error.error.type}: {error.error.text}"[:170])
        return told

    names = ("dead", "snooze", "transaction", "publish", "unwritable", "slow")
    for name in names:
        shop.of.start(wishes, name, id=name)
    shop.drain()
    shop.thread.set()
    shop.advance(seconds=61)
    assert shop.of.status("snooze").state == "running"
    shop.advance(seconds=61)
    found = {name: shop.of.result(name) for name in names}
    assert found["dead"] == ["Dead: no such customer"]
    assert found["snooze"] == ["snooze snooze"]
    assert "ctx.transaction() is not there" in found["transaction"][0]
    assert "ctx.publish is not there" in found["publish"][0]
    assert found["unwritable"][0].startswith("InvalidMessage")
    assert found["slow"] == ["TimedOut: the handler ran longer than 0.05 s."] * 2


def test_failures_for_good_are_counted(shop: Kitchen) -> None:
    sheet = Sheet()

    @shop.app.orchestration()
    async def careful(n: int) -> str:
        try:
            await shop.fragile.using(retry=RetryPolicy(attempts_max=1))(n)
        except ActivityFailed as error:
            return error.category
        return ""

    async def counted() -> None:
        shop.app.prepare()
        try:
            await shop.app.worker(until_idle=True, sheet=sheet).run()
        finally:
            await shop.app.store.aclose()

    shop.fails = 1
    shop.of.start(careful, 1, id="c")
    asyncio.run(counted())
    assert shop.of.result("c") == "infrastructure"
    found = {(each.name, *each.labels): each.values[0] for each in sheet.read()}
    assert found["holdfast_activity_failures_total", "infrastructure"] == 1


def test_what_is_not_waited_for_any_more_is_stopped(shop: Kitchen) -> None:
    stopped: list[int] = []

    @shop.app.activity(inline=True)
    async def sleeper(n: int) -> int:
        try:
            await asyncio.sleep(0 if n == 1 else 60)
        except asyncio.CancelledError:
            stopped.append(n)
            raise
        return n

    @shop.app.orchestration()
    async def first(flow: Flow) -> int:
        won = await flow.first(a=sleeper(1), b=sleeper(2))
        return int(won.value) + await shop.add(10)

    shop.of.start(first, id="f")
    shop.drain()
    assert shop.of.result("f") == 12
    assert stopped == [2]


def test_cancelling_what_waits_for_an_attempt_takes_its_timer_away(shop: Kitchen) -> None:
    @shop.app.orchestration()
    async def careful(n: int) -> int:
        return await shop.fragile(n)

    shop.fails = 1
    shop.of.start(careful, 7, id="c")
    shop.drain()
    timers = f"select count(*) from {shop.prefix}scheduled where queue = 'holdfast/timer'"
    assert shop.query(timers) == [(1,)]
    shop.of.cancel("c")
    shop.drain()
    assert shop.of.status("c").state == "cancelled"
    assert shop.query(timers) == [(0,)]


# --- Crashes


@pytest.mark.covers("X58")
@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_crash_repeats_only_the_activity_that_ran(shop: Kitchen, step: int) -> None:
    shop.stands_at = step
    shop.of.start(shop.chain, 1, id="c")
    shop.crash("chain@1")
    shop.drain()
    assert shop.of.result("c") == 6
    assert shop.did == [*range(1, step + 1), "crash", *range(step, 6)]
    keys = [row[:2] for row in shop.rows("c")]
    assert keys == [(1, part) for part in range(len(keys))], "no gaps"


def test_what_the_code_asked_for_on_the_way_is_sent_by_whoever_goes_on(shop: Kitchen) -> None:
    """A queued call, a timer, a status and a child, asked for in a part that is stored; then the worker dies."""

    @shop.app.orchestration()
    async def kid(n: int) -> int:
        return n

    @shop.app.orchestration()
    async def rich(n: int, flow: Flow) -> list[Any]:
        n = await shop.add(n)
        async with asyncio.TaskGroup() as group:
            queued, child = group.create_task(shop.double(n)), group.create_task(kid.using(id="kid")(n))
            timer = group.create_task(asyncio.sleep(60))
            flow.status = {"at": "work"}
            flow.attributes = {"color": "red"}
            n = await shop.add(n)
            n = await shop.add(n)
            timer.cancel()
        return [queued.result(), child.result(), n]

    shop.stands_at = 3
    shop.of.start(rich, 1, id="r")
    shop.crash("rich@1")
    shop.drain()
    assert shop.of.result("r") == [4, 2, 4]
    shown = shop.app.operations.orchestrations.show("r").state
    assert (shown.status, shown.attributes) == ({"at": "work"}, {"color": "red"})
    assert shop.query(f"select count(*) from {shop.prefix}message") == [(0,)]


def test_an_attempt_that_waits_is_not_forgotten_by_a_crash(shop: Kitchen) -> None:
    """The failure is recorded in a part, and its timer is sent with the turn that another worker settles."""

    @shop.app.orchestration()
    async def both(n: int) -> list[int]:
        async def rest() -> int:
            return await shop.add(await shop.add(1))

        return list(await asyncio.gather(shop.fragile(n), rest()))

    shop.fails, shop.stands_at = 1, 2
    shop.of.start(both, 7, id="b")
    shop.crash("both@1")
    shop.drain()
    assert shop.of.status("b").state == "running"
    shop.advance(seconds=61)
    assert shop.of.result("b") == [7, 3]
    assert [did[1] for did in shop.did if isinstance(did, tuple)] == [1, 2]


def test_a_worker_that_lost_its_lease_stores_nothing_more(shop: Kitchen) -> None:
    """It stands in the second activity; another worker takes over and ends the turn; then the first one goes on."""
    shop.stands_at = 2
    shop.of.start(shop.chain, 1, id="c")

    async def both() -> Any:
        lost = await shop.half(shop.claim("chain@1"))
        shop.app.store.run(engine.recover(worker=4711))
        shop.stands_at = None
        shop.forget()
        await shop.app.worker(until_idle=True).run()
        before = shop.rows("c")
        shop.goes_on.set()
        ended = await lost
        assert shop.rows("c") == before
        await shop.app.store.aclose()
        return ended

    (ending,) = asyncio.run(both())
    assert isinstance(ending, Unsent)
    assert shop.of.result("c") == 6
    assert shop.did == [1, 2, 2, 3, 4, 5], "nothing was started behind the part that was refused"


def test_the_fence_of_a_part(shop: Kitchen) -> None:
    """The lease, the execution, the turn, the part before, and an instance that has not ended."""
    shop.of.start(shop.chain, 1, id="c")
    leased = shop.claim("chain@1")
    right = Part(leased.run, leased.run_epoch, "c", 0, 1, 0, "{}")

    def put(**but: Any) -> bool:
        values = {name: getattr(right, name) for name in Part.__struct_fields__} | but
        return shop.app.store.run(instances.store_parts([Part(**values)])) == {"c"}

    refused = ({"epoch": 2}, {"seq": leased.run + 1}, {"execution": 1}, {"turn": 2}, {"turn": 0}, {"part": 1})
    assert not any(put(**each) for each in refused)
    assert put()
    assert not put(), "once"
    assert put(part=1)
    assert not put(part=3)
    shop.execute(f"update {shop.prefix}instance set state = 'terminated' where id = 'c'")
    assert not put(part=2)
    shop.execute(f"update {shop.prefix}instance set state = 'running' where id = 'c'")
    shop.execute(f"delete from {shop.prefix}journal where id = 'c'")
    shop.app.store.run(engine.recover(worker=4711))
    assert not put(), "the lease is gone"


def test_memory_of_the_turn_before_does_not_count_when_parts_are_stored(shop: Kitchen) -> None:
    """This worker has the instance in memory; another one stored parts of its next turn, and died."""

    @shop.app.orchestration()
    async def waits(flow: Flow) -> int:
        n = await flow.signal("go", int)
        for _ in range(3):
            n = await shop.add(n)
        return n

    shop.of.start(waits, id="w")
    shop.drain()
    assert len(shop.of.place.memory.cache) == 1
    mine = shop.of.place.memory.cache._held.pop("w")  # its memory survives what the helper forgets
    shop.of.place.memory.cache._total = 0
    shop.of.signal("w", "go", 1)
    shop.stands_at = 2
    shop.crash("waits@1")
    shop.of.place.memory.cache.put(mine)
    shop.drain()
    assert shop.of.result("w") == 4
    assert shop.did == [1, 2, "crash", 2, 3]


def test_poison_has_the_name_of_the_activity_and_comes_back(shop: Kitchen) -> None:
    @shop.app.orchestration(max_attempts=2)
    async def twice(n: int) -> int:
        return await shop.add(await shop.add(n))

    shop.of.start(twice, 1, id="t")
    for _ in range(2):
        shop.stands_at = 2
        shop.crash("twice@1")
    shop.drain()
    with pytest.raises(OrchestrationFailed) as failed:
        shop.of.result("t")
    assert "Inline activities that it was running: add#2." in str(failed.value)
    assert failed.value.error.category == "poison"
    assert [row[0] for row in shop.rows("t")] == [1] * len(shop.rows("t"))
    shop.app.operations.dead.redrive_many(Filter(queue="twice@1"))
    shop.drain()
    assert shop.of.result("t") == 3
    assert shop.did.count(1) == 1, "what is recorded is not run again"


# --- Limits, options, the rest


def test_a_long_chain_makes_room_for_what_waits_in_the_stream(
    shop: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_module, "MOST", 2)
    shop.of.start(shop.chain, 1, id="c")
    shop.drain()
    assert shop.of.result("c") == 6
    assert shop.of.status("c").turn == 3
    assert shop.did == [1, 2, 3, 4, 5]
    shop.did.clear()

    @shop.app.orchestration()
    async def forever(n: int, flow: Flow) -> None:
        while True:
            n = await shop.add(n)
            if n == 4:
                flow.once(lambda: shop.of.cancel("f"))

    shop.of.start(forever, 1, id="f")
    shop.drain()
    assert shop.of.status("f").state == "cancelled"
    assert len(shop.did) <= 5


def test_options_that_need_a_queue_are_refused_by_name(shop: Kitchen) -> None:
    def f(n: int) -> int:
        return n

    for name, value in {
        "breaker": "stripe", "rate": "10/s", "cluster_concurrency": 3, "concurrency": 3, "catch_up": "10/s",
        "steps": ["a"],
    }.items():  # fmt: skip
        with pytest.raises(
            InvalidSettings, match=f"is to run inline, inside the turn, and has {name}: that needs"
        ):
            shop.app.activity(name="f", inline=True, **{name: value})(f)
    with pytest.raises(InvalidSettings, match='has on_dead="wait"'):
        shop.app.activity(name="f", inline="turn", on_dead="wait")(f)
    with pytest.raises(InvalidSettings, match="150 s, half of the setting `timeout`, is the most"):
        shop.app.activity(name="f", inline=True, timeout=151)(f)
    with pytest.raises(InvalidSettings, match='must be True, False or "turn"'):
        shop.app.activity(name="f", inline="always")(f)  # type: ignore[arg-type]
    limited = shop.app.activity(name="limited", concurrency=2)(f)
    with pytest.raises(InvalidSettings, match="has concurrency"):
        limited.using(inline=True)
    with pytest.raises(InvalidSettings, match="has queue, deadline"):
        shop.add.using(queue="gpu", deadline=timedelta(hours=1))


def test_one_call_may_be_inline_or_not_and_stays_as_it_was_recorded(shop: Kitchen) -> None:
    how: dict[str, Any] = {"inline": True}

    @shop.app.orchestration()
    async def one(n: int) -> int:
        return await shop.double.using(inline=how["inline"])(n) + await shop.add.using(inline=False)(n)

    shop.of.start(one, 1, id="a")
    shop.drain("one@1")
    assert shop.did == [1], "the one that is inline has run; the other one waits in its queue"
    how["inline"] = False  # the code changes while the instance waits
    shop.forget()
    shop.drain()
    assert shop.of.result("a") == 4
    shop.of.start(one, 1, id="b")
    shop.drain("one@1")
    how["inline"] = "turn"
    shop.forget()
    shop.drain()
    assert shop.of.result("b") == 4
    assert shop.did == [1, 1, 1, 1]


def test_sealed_parts_and_the_self_check(url: str) -> None:
    sealed = Kitchen(url, {"keys": new_key("k1")})
    sealed.of.place.memory.sampling.every = 1

    @sealed.app.orchestration()
    async def secret(n: int, flow: Flow) -> int:
        n = await sealed.add(await flow.signal("go", int))
        return await sealed.add(n)

    sealed.of.start(secret, 1, id="s")
    sealed.drain()
    sealed.of.signal("s", "go", 4711)
    sealed.drain()
    assert sealed.of.result("s") == 4713
    bodies = [text for (text,) in sealed.query(f"select body from {sealed.prefix}journal where id = 's'")]
    assert len(bodies) == 3
    assert not any("4711" in text or "signalled" in text for text in bodies)
    assert sealed.of.place.memory.sampling.checked >= 1
    assert sealed.of.place.memory.sampling.differed == 0
    sealed.forget()
    sealed.app.close()


def test_in_tests_of_applications(tmp_path: Path) -> None:
    shop = Kitchen(f"sqlite:///{tmp_path / 'x.db'}")
    with shop.app.testing() as t:
        t.fake(shop.add, lambda n: n + 100)
        shop.of.start(shop.chain, 1, id="c")
        t.drain()
        assert shop.of.result("c") == 501
        t.journal("c").save(tmp_path)
        t.fake(shop.fragile, ConnectionError("no"))

        @shop.app.orchestration()
        async def careful(n: int) -> int:
            return await shop.fragile(n)

        shop.of.start(careful, 1, id="d")
        t.drain()
        t.forget()
        t.advance(minutes=2)
        t.drain()
        t.advance(minutes=2)
        t.drain()
        assert shop.of.status("d").state == "failed"
    shop.app.close()


def test_parts_whose_turn_was_stopped_are_not_stored() -> None:
    """The one that waits is stopped before its part goes out."""

    async def stopped() -> None:
        sent: list[Any] = []

        class Store:
            async def arun(self, plan: Any) -> set[str]:
                sent.append(plan)
                await asyncio.sleep(0)
                return set()

        parts = Parts(lambda: Store())  # type: ignore[arg-type,return-value]
        one, two = (asyncio.create_task(parts.put(Part(1, 1, id, 0, 1, 0, "{}"))) for id in "ab")
        await asyncio.sleep(0)
        two.cancel()
        assert await one is False
        await asyncio.wait([two])
        assert two.cancelled()

    asyncio.run(stopped())


def test_one_part_that_the_database_refuses_does_not_harm_the_others() -> None:
    async def stored() -> list[Any]:
        class Store:
            async def arun(self, plan: Any) -> set[str]:
                query = next(iter(plan))
                ids = [each["id"] for each in json.loads(query.params["rows"])]
                if "bad" in ids:
                    raise ValueError("refused")
                return set(ids)

        parts = Parts(lambda: Store())  # type: ignore[arg-type,return-value]
        puts = [parts.put(Part(1, 1, id, 0, 1, 0, "{}")) for id in ("a", "bad", "c")]
        return await asyncio.gather(*puts, return_exceptions=True)

    first, second, third = asyncio.run(stored())
    assert (first, third) == (True, True)
    assert isinstance(second, ValueError)


@pytest.mark.one_postgres
def test_a_part_and_a_take_over_wait_for_each_other(postgres_dsn: str) -> None:
    """PostgreSQL: whoever takes a run over sees the part, or the part is refused; there is nothing in between."""
    shop = Kitchen(postgres_dsn)
    shop.app.store.migrate()
    shop.of.start(shop.chain, 1, id="c")
    leased = shop.claim("chain@1")
    store = shop.app.store

    def part(number: int) -> Any:
        return instances.store_parts([Part(leased.run, leased.run_epoch, "c", 0, 1, number, "{}")])

    def on(connection: Any) -> Any:
        return lambda plan: drive(store.bound(plan), lambda statement: execute(connection, statement))

    with psycopg.connect(shop.url) as one, psycopg.connect(shop.url) as two, ThreadPoolExecutor(1) as pool:
        assert on(one)(part(0)) == {"c"}
        over = pool.submit(lambda: on(two)(engine.recover(worker=4711)))
        assert not threading.Event().wait(0.3)
        assert not over.done(), "the lease cannot end before the part is stored"
        assert on(one)(engine.renew(4711, [(leased.run, leased.run_epoch)], 30.0)) == (set(), set())
        one.commit()
        assert over.result(20) == 1
        late = pool.submit(lambda: on(one)(part(1)))
        assert not threading.Event().wait(0.3)
        assert not late.done(), "nobody knows yet whether the lease ends"
        two.commit()
        assert late.result(20) == set()
        one.commit()
    assert [row[:2] for row in shop.rows("c")] == [(1, 0)]
    shop.execute(f"delete from {shop.prefix}journal where id = 'c'")
    shop.drain()
    assert shop.of.result("c") == 6
    shop.app.close()
