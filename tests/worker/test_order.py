"""Order per stream, and how much runs at once, through the worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from typing import Any

import pytest

from holdfast import Context, RetryPolicy
from holdfast.model.work import Batch, Report
from holdfast.rules.lanes import Lane
from holdfast.rules.pacing import Pacing
from holdfast.testing import Drained
from tests.worker.lab import Lab, auntil, settled

at_once = RetryPolicy(attempts_max=5, base=0.0, factor=1.0, cap=0.0)


class Witness:
    """Sees handlers begin and end, from any thread, and how many of one key there are at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen: dict[Any, list[Any]] = defaultdict(list)
        self.now: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()

    def begin(self, key: Any, what: Any) -> None:
        with self.lock:
            self.seen[key].append(what)
            self.now[key] += 1
            self.now["all"] += 1
            for each in (key, "all"):
                self.most[each] = max(self.most[each], self.now[each])

    def end(self, key: Any) -> None:
        with self.lock:
            self.now[key] -= 1
            self.now["all"] -= 1


async def test_a_hot_stream_takes_no_exchange_that_neither_brings_nor_takes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind a run that a worker holds cannot be claimed: it begins the run before it asks again."""
    app, count = lab.app(), 1500
    handled: list[int] = []
    exchanges: list[tuple[int, int]] = []
    receive = Pacing.receive

    @app.handler("a", name="work")
    async def work(body: dict) -> None:
        handled.append(body["n"])

    def counted(self: Pacing, report: Report, batch: Batch, asked_at: float) -> list[Lane]:
        if len(handled) < count:
            exchanges.append((len(report.settlements), len(batch.work)))
        return receive(self, report, batch, asked_at)

    monkeypatch.setattr(Pacing, "receive", counted)
    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(count))
    async with lab.working(app):
        await auntil(lambda: len(handled) == count)
    assert handled == list(range(count))
    assert max(work for _, work in exchanges) >= 64, "else it begins what came at once anyway"
    assert exchanges.count((0, 0)) == 0, exchanges


@pytest.mark.covers("W36", "X45", "W45", "W49", "W50", "D22")
@pytest.mark.parametrize("kind", ["async", "suspends", "def"])
async def test_a_stream_is_handled_in_order_one_at_a_time(lab: Lab, kind: str) -> None:
    app, witness = lab.app(), Witness()

    if kind == "def":

        @app.handler("a", name="work")
        def work(body: dict, ctx: Context) -> None:
            witness.begin(ctx.stream, body["n"])
            witness.end(ctx.stream)

    else:

        @app.handler("a", name="work")
        async def work_async(body: dict, ctx: Context) -> None:
            witness.begin(ctx.stream, body["n"])
            if kind == "suspends":
                await asyncio.sleep(0)
            witness.end(ctx.stream)

    app.publish_many(app.message("a", {"n": n}, stream=f"s{n % 7}") for n in range(700))
    async with lab.working(app):
        await settled(lab)
    for stream in range(7):
        assert witness.seen[f"s{stream}"] == list(range(stream, 700, 7))
        assert witness.most[f"s{stream}"] == 1


@pytest.mark.covers("W46", "W108", "W109", "W81", "X1")
async def test_strict_a_failed_head_blocks_its_stream_until_its_retry(lab: Lab) -> None:
    app, clock = lab.still()
    seen: list[tuple[str, int, int]] = []

    @app.handler("a", retry="steady")
    async def work(body: dict, ctx: Context) -> None:
        seen.append((ctx.stream or "", body["n"], ctx.attempt))
        if body["n"] == 1 and ctx.attempt == 1 and ctx.stream == "bad":
            raise RuntimeError("once")

    app.publish_many(app.message("a", {"n": n}, stream=s) for n in range(4) for s in ("bad", "good"))
    t = Drained(app, clock)
    await t.adrain(raises=False)
    assert [each for each in seen if each[0] == "bad"] == [("bad", 0, 1), ("bad", 1, 1)]
    assert [each for each in seen if each[0] == "good"] == [("good", n, 1) for n in range(4)]
    t.advance(seconds=59)
    await t.adrain(raises=False)
    assert len(seen) == 6
    t.advance(seconds=1)
    await t.adrain(raises=False)
    assert [each for each in seen if each[0] == "bad"][2:] == [("bad", 1, 2), ("bad", 2, 1), ("bad", 3, 1)]
    assert {row.attempts for row in lab.rows("history") if row.failures == 0} == {1}


@pytest.mark.covers("W37", "W44", "W81", "W84", "W85", "W107", "W51")
async def test_available_a_failed_head_is_set_aside_and_the_stream_goes_on(lab: Lab) -> None:
    app, clock = lab.still()
    seen: list[tuple[int, int]] = []

    @app.handler("a", retry="steady", order="available")
    async def work(body: dict, ctx: Context) -> None:
        seen.append((body["n"], ctx.attempt))
        if body["n"] == 1 and ctx.attempt == 1:
            raise RuntimeError("once")

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(4))
    t = Drained(app, clock)
    await t.adrain(raises=False)
    assert seen == [(0, 1), (1, 1), (2, 1), (3, 1)]
    (aside,) = lab.rows("message")
    assert (aside.position, aside.head, aside.stream) == (None, True, "s")
    t.advance(minutes=1)
    await t.adrain(raises=False)
    assert seen[4:] == [(1, 2)]


@pytest.mark.covers("W82", "W83")
@pytest.mark.parametrize("type", ["payment", "audit.line"])
async def test_what_must_not_be_overtaken_is_written_in_order_with_strict_and_only_then(
    lab: Lab, type: str
) -> None:
    """Payments and audit logs are for `order="strict"`, as docs/streams.md says: no line before an earlier one."""
    app, clock = lab.still()
    books: dict[str, list[int]] = {"strict": [], "available": []}

    def keeper(order: Any) -> None:
        @app.handler(type, name=order, retry="steady", order=order)
        async def write(line: dict, ctx: Context) -> None:
            if line["n"] == 1 and ctx.attempt < 3:
                raise ConnectionError("the book is closed")
            books[order].append(line["n"])

    keeper("strict")
    keeper("available")
    app.publish_many(app.message(type, {"n": n}, stream="account") for n in range(4))
    t = Drained(app, clock)
    for _ in range(4):
        await t.adrain(raises=False)
        t.advance(hours=1)
    assert books == {"strict": [0, 1, 2, 3], "available": [0, 2, 3, 1]}


async def test_a_message_set_aside_comes_back_beside_its_own_run(lab: Lab) -> None:
    """Its lane goes on with the rest of the run while it is claimed anew: two lanes, one message of each at a time."""
    app, seen = lab.app(), []

    @app.handler("a", retry=at_once, order="available")
    async def work(body: dict, ctx: Context) -> None:
        seen.append((body["n"], ctx.attempt))
        await asyncio.sleep(0.002)
        if body["n"] % 5 == 0 and ctx.attempt < 3:
            raise RuntimeError("twice")

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(60))
    async with lab.working(app):
        await settled(lab)
    assert Counter(n for n, _ in seen) == {n: 3 if n % 5 == 0 else 1 for n in range(60)}
    first = [n for n, attempt in seen if attempt == 1]
    assert first == list(range(60))


@pytest.mark.covers("X37", "W48")
@pytest.mark.parametrize("on_dead", ["continue", "halt"])
async def test_after_a_death_the_stream_goes_on_or_halts(lab: Lab, on_dead: Any) -> None:
    app, clock = lab.still()
    seen: list[int] = []

    @app.handler("a", retry=RetryPolicy(attempts_max=1), on_dead=on_dead)
    async def work(body: dict) -> None:
        seen.append(body["n"])
        if body["n"] == 1:
            raise RuntimeError("no")

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(4))
    await Drained(app, clock).adrain(raises=False)
    assert seen == ([0, 1, 2, 3] if on_dead == "continue" else [0, 1])
    assert len(lab.rows("dead")) == 1
    assert len(lab.rows("message")) == (0 if on_dead == "continue" else 2)


async def test_a_handler_that_wants_no_order_gets_none(lab: Lab) -> None:
    app, witness = lab.app(), Witness()
    all_there = asyncio.Event()

    @app.handler("a", ordered=False)
    async def work(body: dict, ctx: Context) -> None:
        witness.begin("all of s", body["n"])
        if witness.now["all of s"] == 5:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), 20)
        witness.end("all of s")

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(5))
    async with lab.working(app):
        await settled(lab)
    assert witness.most["all of s"] == 5


@pytest.mark.covers("W103", "X23", "B43", "W33")
async def test_two_workers_share_and_never_overlap(lab: Lab) -> None:
    first, second, witness = lab.app(claim=5), lab.app(claim=5), Witness()  # neither can hold all streams
    for app, who in ((first, "first"), (second, "second")):

        @app.handler("a", name="work")
        async def work(body: dict, ctx: Context, who: str = who) -> None:
            witness.begin(ctx.stream, body["n"])
            witness.seen[who].append(body["n"])
            await asyncio.sleep(0.001)
            witness.end(ctx.stream)

    first.publish_many(first.message("a", {"n": n}, stream=f"s{n % 40}") for n in range(1200))
    async with lab.working(first), lab.working(second):
        await settled(lab)
    for stream in range(40):
        assert witness.seen[f"s{stream}"] == list(range(stream, 1200, 40))
        assert witness.most[f"s{stream}"] == 1
    assert witness.seen["first"]
    assert witness.seen["second"]
    assert {row.attempts for row in lab.rows("history")} == {1}


@pytest.mark.parametrize(("kind", "limit"), [("async", 1), ("async", 7), ("def", 1), ("def", 4)])
async def test_a_handler_runs_no_more_at_once_than_it_allows(lab: Lab, kind: str, limit: int) -> None:
    app, witness = lab.app(), Witness()

    if kind == "async":

        @app.handler("a", name="work", concurrency=limit)
        async def work(body: dict) -> None:
            witness.begin("k", body["n"])
            await asyncio.sleep(0.005)
            witness.end("k")

    else:

        @app.handler("a", name="work", concurrency=limit)
        def work_too(body: dict) -> None:
            witness.begin("k", body["n"])
            time.sleep(0.005)
            witness.end("k")

    app.publish_many(app.message("a", {"n": n}) for n in range(60))
    async with lab.working(app):
        await settled(lab)
    assert witness.most["k"] == limit
    if limit == 1:
        assert witness.seen["k"] == list(range(60)), "oldest first"


@pytest.mark.parametrize("key", ["subject", "stream", "body"])
async def test_no_more_of_one_key_at_once_than_allowed(lab: Lab, key: Any) -> None:
    app, witness = lab.app(), Witness()
    chosen: Any = (lambda body: body["customer"]) if key == "body" else key

    @app.handler("a", concurrency=20, per_key=2, key=chosen, ordered=False)
    async def work(body: dict, ctx: Context) -> None:
        witness.begin(body["customer"], body["n"])
        await asyncio.sleep(0.002)
        witness.end(body["customer"])

    app.publish_many(
        app.message("a", {"n": n, "customer": n % 3}, subject=f"c{n % 3}", stream=f"s{n % 3}")
        for n in range(120)
    )
    async with lab.working(app):
        await settled(lab)
    assert {witness.most[customer] for customer in range(3)} == {2}
    assert witness.most["all"] == 6
    assert sum(len(witness.seen[customer]) for customer in range(3)) == 120


async def test_a_limit_for_keys_leaves_others_alone(lab: Lab) -> None:
    """A hundred messages of a slow customer do not keep another's from being handled meanwhile."""
    app, seen = lab.app(), []
    go_on = asyncio.Event()

    @app.handler("a", concurrency=10, per_key=1, key="subject")
    async def work(body: dict, ctx: Context) -> None:
        if ctx.subject == "slow":
            await go_on.wait()
        seen.append(ctx.subject)

    app.publish_many(app.message("a", {}, subject="slow") for _ in range(100))
    app.publish("a", {}, subject="quick")
    app.publish("a", {})  # no key: no limit
    async with lab.working(app):
        await auntil(lambda: len(seen) == 2, lab.describe)
        assert sorted(map(str, seen)) == ["None", "quick"]
        go_on.set()
        await settled(lab)
    assert Counter(seen)["slow"] == 100


async def test_keys_inside_a_run_are_limited_too(lab: Lab) -> None:
    """A stream's messages may differ in their key; the order of the stream stands above the limit."""
    app, witness = lab.app(), Witness()

    @app.handler("a", per_key=1, key=lambda body: body["key"])
    async def work(body: dict, ctx: Context) -> None:
        witness.begin(("key", body["key"]), body["n"])
        witness.begin(ctx.stream, body["n"])
        await asyncio.sleep(0.001)
        witness.end(ctx.stream)
        witness.end(("key", body["key"]))

    app.publish_many(app.message("a", {"n": n, "key": n % 2}, stream=f"s{n % 5}") for n in range(200))
    async with lab.working(app):
        await settled(lab)
    for stream in range(5):
        assert witness.seen[f"s{stream}"] == list(range(stream, 200, 5))
    assert witness.most["key", 0] == witness.most["key", 1] == 1


async def test_a_key_that_cannot_be_told_is_no_limit_and_no_loss(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = lab.app(), []

    @app.handler("a", per_key=1, key=lambda body: body["customer"])
    async def work(body: dict) -> None:
        seen.append(body)

    app.publish("a", {"other": 1})
    async with lab.working(app):
        await settled(lab)
    assert seen == [{"other": 1}]
    assert "cannot be computed: KeyError" in caplog.text


async def test_a_slow_queue_does_not_delay_another(lab: Lab) -> None:
    app, seen = lab.app(), []
    go_on = asyncio.Event()

    @app.handler("slow", concurrency=5)
    async def slow(body: dict) -> None:
        await go_on.wait()

    @app.handler("quick")
    async def quick(body: dict) -> None:
        seen.append(body["n"])

    app.publish_many(app.message("slow", {}) for _ in range(300))
    app.publish_many(app.message("quick", {"n": n}) for n in range(300))
    async with lab.working(app):
        await auntil(lambda: len(seen) == 300, lab.describe)
        ((held,),) = lab.query(
            "select count(*) from {lease} l join {message} m on m.seq = l.seq where m.queue = 'slow'"
        )
        go_on.set()
        await settled(lab)
    assert held <= 10, "slow handlers hoard nothing"


async def test_slow_handlers_hoard_no_runs(lab: Lab) -> None:
    """A stream's next messages stay in the store while its handler is slow, once that is known."""
    app = lab.app()

    @app.handler("a", concurrency=2)
    async def slow(body: dict) -> None:
        await asyncio.sleep(0.3)

    app.publish_many(app.message("a", {"n": n}, stream="s") for n in range(6))
    held = []
    async with lab.working(app) as worker:
        while not lab.is_empty():
            held.append(worker.pacing.held)
            await asyncio.sleep(0.02)
    assert max(held) <= 2
