"""Speculative turns on the real engine, on both databases: the worker of an activity runs the next turn ahead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import ActivityFailed, Context, Flow, RetryPolicy
from holdfast.bodies.keys import new_key
from holdfast.orchestrations.leaving import Leaving
from holdfast.orchestrations.selfcheck import Sampling
from holdfast.orchestrations.turn import Instance
from tests.orchestrations.test_on_the_engine import ONCE, Shop
from tests.store.state import check_invariants

STEPS = 6


class Chain(Shop):
    """A shop whose activity can do something in the middle of a call."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.during: Callable[[int], None] = lambda n: None
        self.drawn: list[int] = []

        @self.app.activity()
        async def step(n: int) -> int:
            self.did.append(n)
            self.during(n)
            return n + 1

        self.step = step

        @self.app.orchestration(version="1")
        async def chain(n: int) -> int:
            for _ in range(STEPS):
                n = await step(n)
            return n

        self.chain = chain

    def ran(self, queue: str = "chain@1", id: str = "c") -> tuple[int, int]:
        """How many turns were stored, and how many of them came by a message."""
        ((turns,),) = self.query(f"select count(*) from {{journal}} where id = '{id}' and execution = 0")
        ((messages,),) = self.query(f"select count(*) from {{history}} where queue = '{queue}'")
        return turns, messages


def replays(shop: Chain, made: Any, id: str) -> None:
    """The journal as it is stored replays to its end, and nothing in it is missing or too much."""
    rows = list(shop.app.operations.orchestrations.journal(id))
    execution = rows[-1].execution
    instance = Instance(made.program, id, execution)
    instance.load(each for each in rows if each.execution == execution)
    instance.catch_up()
    assert instance.trouble is None
    assert instance.ended is not None
    instance.close()


@pytest.fixture
def shop(url: str) -> Iterator[Chain]:
    made = Chain(url)
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


def test_a_chain_has_one_message_for_each_step(shop: Chain) -> None:
    """Each end of an activity brings the next turn with it; only the start has a turn of its own."""
    shop.of.start(shop.chain, 0, id="c")
    shop.drain()
    assert shop.of.result("c") == STEPS
    assert shop.did == list(range(STEPS))
    assert shop.ran() == (STEPS + 1, 1)
    assert shop.query("select count(*), max(attempts) from {history}") == [(STEPS + 1, 1)]


def test_the_journal_is_as_it_would_be_without_it(shop: Chain) -> None:
    """The rows name the answers that they consumed, though no such message was stored; replay and check agree."""
    shop.app.orchestrations.place.memory.sampling = Sampling(0)
    for id, ahead in (("c", True), ("plain", False)):
        shop.of.place.memory.foresees = ahead
        shop.of.start(shop.chain, 0, id=id)
        shop.drain()
    rows = {
        id: [
            json.loads(body.replace('"plain/0"', '"c/0"'))
            for (body,) in shop.query(f"select body from {{journal}} where id = '{id}' order by turn")
        ]
        for id in ("c", "plain")
    }
    named = [entry[0][1] for row in rows["c"][1:] for entry in row["entries"]]
    assert len(set(named)) == STEPS
    stored = {str(id) for (id,) in shop.query("select id from {history}")}
    assert not stored & set(named)
    for found in rows.values():
        for row in found:
            row.pop("at", None)
            for entry in row["entries"]:
                del entry[0][1:3]  # the message and the time
    assert rows["c"] == rows["plain"]
    lines = {id: shop.app.operations.orchestrations.lines(id) for id in ("c", "plain")}
    told = {id: [(each.turn, each.event, each.asked, each.value) for each in lines[id]] for id in lines}
    assert told["c"] == told["plain"]
    replays(shop, shop.chain, "c")


def test_a_signal_in_between_comes_before_the_answer(shop: Chain) -> None:
    """H33: what is in the stream when the activity ends is seen first, and the answer comes by a message."""
    step, seen = shop.step, []

    @shop.app.orchestration()
    async def listens(flow: Flow) -> list[str]:
        async def hear() -> None:
            seen.append(await flow.signal("word", str))

        async with asyncio.TaskGroup() as group:
            group.create_task(hear())
            await step(0)
            found = list(seen)
            await step(1)
        return found

    shop.during = lambda n: shop.of.signal("l", "word", "before") if n == 0 else None  # type: ignore[func-returns-value]
    shop.of.start(listens, id="l")
    shop.drain()
    assert shop.of.result("l") == ["before"]
    shop.forget()
    turns, messages = shop.ran("listens@1", "l")
    assert (turns, messages) in {(3, 3), (4, 3)}  # the start, the signal and the first answer


@pytest.mark.parametrize("what", ["suspended", "paused queue", "cancelled", "turned by another worker"])
def test_what_happens_while_the_activity_runs_decides(shop: Chain, what: str) -> None:
    """The answer waits in the stream as a message, and the instance goes on from there, each step once."""
    ops = shop.app.operations

    def meanwhile(n: int) -> None:
        if n != 2:
            return
        if what == "suspended":
            ops.orchestrations.suspend("c", "why")
        elif what == "paused queue":
            ops.queues.pause("chain@1", why="why")
        elif what == "cancelled":
            shop.of.cancel("c")
        else:
            shop.execute(f"update {shop.prefix}instance set mark = start")

    shop.during = meanwhile
    shop.of.start(shop.chain, 0, id="c")
    shop.drain()
    if what in ("suspended", "paused queue"):
        assert shop.did == [0, 1, 2]
        assert shop.query("select type from {message}") == [("holdfast.answer",)]
        assert shop.ran() == (3, 1)
        if what == "suspended":
            ops.orchestrations.resume("c")
        else:
            ops.queues.resume("chain@1")
        shop.drain()
    if what == "cancelled":
        assert shop.of.status("c").state == "cancelled"
        assert shop.did == [0, 1, 2]
    else:
        assert shop.of.result("c") == STEPS
        assert shop.did == list(range(STEPS))


def once(shop: Chain) -> Any:
    step, drawn = shop.step, shop.drawn

    @shop.app.orchestration(version="1", name="more")
    async def more(n: int, flow: Flow) -> int:
        for _ in range(3):
            n = await step(n)
            n = flow.once(lambda n=n: drawn.append(n) or n, name="draw")  # type: ignore[misc]
        return n

    return more


def caught(shop: Chain) -> Any:
    step = shop.step

    @shop.app.orchestration(version="1", name="more")
    async def more(n: int, flow: Flow) -> int:
        n = await step(n)
        try:
            flow.once(lambda: shop.did.append("drawn"))
        except BaseException:
            shop.did.append("caught")
        n = await step(n)
        return await step(n)

    return more


def inline(shop: Chain) -> Any:
    step = shop.step

    @shop.app.activity(inline=True)
    async def here(n: int) -> int:
        shop.did.append(f"here {n}")
        return n

    @shop.app.orchestration(version="1", name="more")
    async def more(n: int) -> int:
        for _ in range(3):
            n = await here(await step(n))
        return n

    return more


def slept(shop: Chain) -> Any:
    step = shop.step

    @shop.app.orchestration(version="1", name="more")
    async def more(n: int) -> int:
        for _ in range(3):
            n = await step(n)
            async with asyncio.timeout(3600):
                await asyncio.sleep(0)
                n = await step(n) - 1
        return n

    return more


def again(shop: Chain) -> Any:
    step = shop.step

    @shop.app.orchestration(version="1", name="more")
    async def more(n: int, flow: Flow) -> int:
        n = await step(n)
        if n < 3:
            flow.again(n)
        return n

    return more


def with_a_child(shop: Chain) -> Any:
    step = shop.step

    @shop.app.orchestration(version="1")
    async def child(n: int) -> int:
        return await step(n)

    @shop.app.orchestration(version="1", name="more")
    async def more(n: int) -> int:
        n = await step(n)
        n = await child(n)
        return await step(n)

    return more


@pytest.mark.parametrize("make", [once, caught, inline, slept, again, with_a_child])
def test_a_turn_that_does_more_comes_by_its_message(shop: Chain, make: Callable[[Chain], Any]) -> None:
    """Side effects are not run on a guess: each once; whatever else a turn does, it is stored once."""
    made = make(shop)
    shop.of.start(made, 0, id="m")
    shop.drain()
    assert shop.of.result("m") == 3
    assert shop.query("select count(*) from {dead}") == [(0,)]
    if make is once:
        assert shop.drawn == [1, 2, 3]
    elif make is caught:
        assert shop.did == [0, "caught", "drawn", 1, 2]
    elif make is inline:
        assert shop.did == [0, "here 1", 1, "here 2", 2, "here 3"]
    replays(shop, made, "m")


def test_what_follows_in_vain_is_tried_less_and_less(shop: Chain) -> None:
    memory = shop.of.place.memory
    skips = [memory.skips.is_due(("q", "a")) for _ in range(2)]
    assert skips == [True, True]
    memory.skips.note(("q", "a"), worked=False)
    memory.skips.note(("q", "a"), worked=False)
    assert [memory.skips.is_due(("q", "a")) for _ in range(4)] == [False, False, True, True]
    assert memory.skips.is_due(("q", "b"))
    memory.skips.note(("q", "a"), worked=True)
    memory.skips.note(("q", "a"), worked=False)
    assert [memory.skips.is_due(("q", "a")) for _ in range(2)] == [False, True]


def test_not_after_a_retry_nor_at_the_last_start_nor_in_a_transaction(shop: Chain) -> None:
    """A turn that kills the process may cost the activity one start, and never its death."""

    @shop.app.activity(retry=RetryPolicy(attempts_max=3, base=0.0))
    async def retried(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise RuntimeError("no")
        return 1

    @shop.app.activity(retry=ONCE)
    async def single() -> int:
        return 2

    @shop.app.activity()
    async def stored(ctx: Context) -> int:
        async with ctx.transaction():
            ctx.answer(3)
        return 3

    @shop.app.activity()
    def threaded() -> int:
        return 4

    @shop.app.activity(retry=ONCE)
    async def fails() -> int:
        raise RuntimeError("no")

    @shop.app.orchestration(version="1", name="chain2")
    async def several() -> list[int]:
        found = [await retried(), await single(), await stored()]
        try:
            await fails()
        except ActivityFailed:
            found.append(0)
        return [*found, await threaded()]

    shop.of.start(several, id="s")
    shop.drain()
    assert shop.of.result("s") == [1, 2, 3, 0, 4]
    assert shop.ran("chain2@1", "s") == (6, 5)  # after the last, which runs in a thread


def test_with_several_calls_open_only_the_last_answer_brings_a_turn(shop: Chain) -> None:
    step = shop.step

    @shop.app.orchestration(version="1")
    async def fan() -> int:
        return sum(await asyncio.gather(*(step(n) for n in range(5))))

    shop.of.start(fan, id="f")
    shop.drain()
    assert shop.of.result("f") == 15
    turns, messages = shop.ran("fan@1", "f")
    assert messages in (5, 6)
    assert turns <= messages + 1


def test_an_activity_is_not_to_blame_for_a_turn_that_the_database_refuses(
    shop: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange is handed in again with the answer alone. The activity has run once, and its turn comes after it."""
    plain, broken = Leaving.delta, []

    def wrong(self: Leaving, turn: Any, *others: Any) -> Any:
        made = plain(self, turn, *others)
        if turn.row.turn == 3 and not broken:
            broken.append(turn)
            return replace(made, rows=({**made.rows[0], "state": None},))
        return made

    monkeypatch.setattr(Leaving, "delta", wrong)
    shop.of.start(shop.chain, 0, id="c")
    shop.drain()
    assert len(broken) == 1
    assert shop.of.result("c") == STEPS
    assert shop.did == list(range(STEPS))
    assert shop.query("select max(attempts), max(failures) from {history}") == [(1, 0)]
    assert shop.ran() == (STEPS + 1, 2)


def test_one_turn_in_so_many_comes_by_its_message_and_is_checked(shop: Chain) -> None:
    memory = shop.of.place.memory
    memory.sampling = Sampling(3)
    shop.of.start(shop.chain, 0, id="c")
    shop.drain()
    assert shop.of.result("c") == STEPS
    assert (memory.sampling.checked, memory.sampling.differed) == (2, 0)
    assert shop.ran() == (STEPS + 1, 3)


def test_it_can_be_rewound_to_a_step_whose_answer_was_no_message(shop: Chain) -> None:
    shop.of.start(shop.chain, 0, id="c")
    shop.drain()
    shop.app.operations.orchestrations.rewind("c", "why", to="step#3")
    shop.drain()
    assert shop.of.result("c") == STEPS
    assert shop.did == [*range(STEPS), *range(2, STEPS)]


def test_with_keys_everything_of_it_is_sealed(url: str) -> None:
    shop = Chain(url, {"keys": [new_key("k1")]})
    shop.of.start(shop.chain, 0, id="c")
    shop.drain()
    assert shop.of.result("c") == STEPS
    assert shop.ran() == (STEPS + 1, 1)
    assert all("entries" not in body for (body,) in shop.query("select body from {journal}"))
    shop.app.close()


def test_a_worker_that_does_not_serve_the_orchestration_runs_none_of_its_turns(shop: Chain) -> None:
    shop.of.start(shop.chain, 0, id="c")
    shop.drain("chain@1")
    shop.drain("step")
    assert shop.query("select type from {message}") == [("holdfast.answer",)]
    assert shop.ran() == (1, 1)
    shop.drain()
    assert shop.of.result("c") == STEPS
