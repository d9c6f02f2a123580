"""Inline activities that answer at once: the code goes on with the answer and does not wait for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import ActivityFailed, RetryPolicy
from holdfast.orchestrations import inline as inline_module
from holdfast.orchestrations.budget import Watchdog
from holdfast.orchestrations.inline_calls import InlineCalls
from holdfast.orchestrations.journal import Answered, Started
from holdfast.orchestrations.loop import NESTS
from holdfast.orchestrations.outcome import Ask, Overrun, Turn
from holdfast.orchestrations.turn import Instance, play
from tests.orchestrations.shop import ONCE, Shop
from tests.store.state import check_invariants

pytestmark = pytest.mark.skipif(not NESTS, reason="from Python 3.14 on activities always run beside the turn")

NOW = datetime(2026, 11, 19, tzinfo=UTC)
where: ContextVar[str] = ContextVar("where", default="nowhere")


class Bench(Shop):
    """A shop whose activities are recorded with the turn, and a note of what they saw."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.waits: set[int] = set()  # numbers at which `quick` waits for something
        app = self.app

        @app.activity(inline="turn")
        async def quick(n: int) -> int:
            self.did.append((n, where.get()))
            where.set(f"quick {n}")
            before = asyncio.current_task()
            async with asyncio.timeout(5):
                if n in self.waits:
                    await asyncio.sleep(0.01)
            assert asyncio.current_task() is before
            return n + 1

        @app.activity(inline="turn", retry=ONCE)
        async def broken(n: int) -> int:
            raise ValueError(n)

        @app.activity(inline="turn", retry=RetryPolicy(attempts_max=2, base=60.0, jitter=0.0))
        async def second_time(n: int) -> int:
            self.did.append(n)
            if self.did.count(n) == 1:
                raise ConnectionError
            return n

        self.quick, self.broken, self.second_time = quick, broken, second_time

    def knows(self, *names: str) -> None:
        """These have answered at once before."""
        self.of.place.memory.quick.update(dict.fromkeys(names, True))

    def entries(self, id: str) -> list[Any]:
        """What the journal says, without the ids of messages."""
        rows = self.query(f"select body from {self.prefix}journal where id = '{id}' order by turn, part")
        found = [entry for (body,) in rows for entry in json.loads(body)["entries"]]
        return [[[kind, *arrival], *asked] for (kind, _, *arrival), *asked in found]


@pytest.fixture
def bench(url: str) -> Iterator[Bench]:
    made = Bench(url)
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


def programs(bench: Bench) -> dict[str, Any]:
    app, quick = bench.app, bench.quick

    @app.orchestration()
    async def chain(n: int) -> int:
        for _ in range(6):
            n = await quick(n)
        return n

    @app.orchestration()
    async def fails(n: int) -> str:
        try:
            await bench.broken(n)
        except ActivityFailed as error:
            return f"{error.category} {await quick(n)}"
        return ""

    @app.orchestration()
    async def timed(n: int) -> int:
        async with asyncio.timeout(60):
            n = await quick(n)
        n = await bench.double(n)
        async with asyncio.timeout(60):
            return await quick(await quick(n))

    @app.orchestration()
    async def in_tasks(n: int) -> int:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(quick(n))
        return await asyncio.shield(quick(one.result()))

    @app.orchestration()
    async def again(n: int) -> int:
        return await bench.second_time(await quick(n))

    return {"chain": chain, "fails": fails, "timed": timed, "in_tasks": in_tasks, "again": again}


@pytest.mark.parametrize("name", ["chain", "fails", "timed", "in_tasks", "again"])
def test_the_journal_does_not_tell_whether_answers_came_at_once(
    name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs(bench)[name]
    with monkeypatch.context() as patch:
        patch.setattr(InlineCalls, "is_quick", lambda self, ask: False)
        bench.of.start(program, 1, id="beside")
        bench.drain()
        bench.advance(minutes=2)
    bench.did.clear()
    bench.knows("quick", "broken", "second_time")
    bench.of.start(program, 1, id="at once")
    bench.drain()
    bench.advance(minutes=2)
    assert bench.of.result("at once") == bench.of.result("beside")
    told = [without_times(each) for each in bench.entries("at once")]
    assert told == [without_times(each) for each in bench.entries("beside")]
    assert bench.app.operations.orchestrations.check().unfit == ()


def without_times(entry: Any) -> Any:
    """The same without ids, and without numbers that are microseconds: the second instance ran two minutes later."""
    if isinstance(entry, list):
        return [without_times(each) for each in entry]
    if isinstance(entry, dict):
        return {name: value for name, value in entry.items() if name != "message_id"}
    if isinstance(entry, str):
        return entry.replace("at once", "beside")
    return None if isinstance(entry, int) and entry > 1_000_000_000 else entry


def test_no_task_is_made_for_what_answers_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = programs(bench)["chain"]
    bench.of.start(chain, 1, id="first")
    bench.drain()
    assert bench.of.place.memory.quick == {"quick": True}, (
        "it was run beside the call, and has answered at once"
    )
    monkeypatch.setattr(inline_module.InlineRun, "endings", None)
    for n in range(5):
        bench.of.start(chain, n, id=f"c{n}")
    bench.drain()
    assert [bench.of.result(f"c{n}") for n in range(5)] == [6, 7, 8, 9, 10]


def test_several_at_once_each_get_their_own_answer(bench: Bench) -> None:
    @bench.app.orchestration()
    async def fan(n: int) -> list[int]:
        return list(await asyncio.gather(*(bench.quick(each) for each in range(n))))

    bench.knows("quick")
    bench.of.start(fan, 7, id="fan")
    bench.drain()
    assert bench.of.result("fan") == [1, 2, 3, 4, 5, 6, 7]
    assert bench.app.operations.orchestrations.check().unfit == ()


def test_one_that_waits_after_all_ends_in_the_task_in_which_it_began(bench: Bench) -> None:
    """`asyncio.timeout` belongs to the task in which it was entered. Afterwards it is not called at once any more."""
    chain = programs(bench)["chain"]
    bench.knows("quick")
    bench.waits = {3}
    bench.of.start(chain, 1, id="c")
    bench.drain()
    assert bench.of.result("c") == 7
    assert bench.of.place.memory.quick == {"quick": False}
    assert [n for n, _ in bench.did] == [1, 2, 3, 4, 5, 6], "each was begun once"


def test_activities_run_in_the_context_of_the_worker(bench: Bench) -> None:
    """What one sets in a ContextVar reaches neither the next one nor the code."""

    @bench.app.orchestration()
    async def looks(n: int) -> list[str]:
        found = [where.get()]
        await bench.quick(await bench.quick(n))
        return [*found, where.get()]

    bench.knows("quick")
    token = where.set("worker")
    try:
        bench.of.start(looks, 1, id="l")
        bench.drain()
    finally:
        where.reset(token)
    assert bench.of.result("l") == ["nowhere", "nowhere"]
    assert bench.did == [(1, "worker"), (2, "worker")]


# --- One instance, without an engine


def started(code: Callable[..., Any], answers: Callable[[Ask], Answered | None], **options: Any) -> Any:
    """The first turn of an orchestration with this code."""
    from holdfast.orchestrations.declared import activity, orchestration
    from holdfast.orchestrations.host import Options

    async def step(n: int) -> int:
        return n

    one = activity(name="step", options=Options(inline="turn"))(step)

    @orchestration(name="code")
    async def program() -> Any:
        return await code(one)

    instance = Instance(program.program, "i", **options)
    try:
        begin = Started("m1", 1, None, "i/0")
        trouble = instance.take([begin], answers)
        return program.program, trouble or instance.part(NOW)
    finally:
        instance.close()


def answer(ask: Ask) -> Answered:
    return Answered("", 2, 0, ask.number, ask.input)


def test_what_stops_an_activity_from_outside_is_not_the_codes_to_catch() -> None:
    seen: list[BaseException] = []

    async def code(one: Any) -> None:
        try:
            await one(1)
        except BaseException as error:
            seen.append(error)

    def stops(ask: Ask) -> Answered | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        started(code, stops)
    assert [type(each).__name__ for each in seen] in ([], ["CancelledError"]), (
        "only that the instance is dropped"
    )


def test_a_task_that_is_being_cancelled_waits_as_ever() -> None:
    """The cancellation comes before the answer, as in replay."""

    async def code(one: Any) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await one(1)
        except asyncio.CancelledError:
            task.uncancel()
            return f"cancelled, then {await one(2)}"
        return "answered"

    program, turn = started(code, answer)
    assert isinstance(turn, Turn)
    assert turn.end is not None
    assert turn.end.result == '"cancelled, then 2"'
    again = Instance(program, "i")
    again.load([turn.row])
    again.catch_up()
    assert again.trouble is None
    assert again.ended == turn.end
    again.close()


def test_what_others_would_do_before_the_answer_is_done_before() -> None:
    """A task that is ready to run comes first: so the answer is given later."""
    order: list[str] = []

    async def code(one: Any) -> None:
        other = asyncio.create_task(beside())
        await one(1)
        order.append("answered")
        await other

    async def beside() -> None:
        order.append("other task")

    program, turn = started(code, answer)
    assert isinstance(turn, Turn)
    assert turn.end is None
    assert order == ["other task"]
    begun = [turn.row]
    order.clear()
    (ask,) = [entry.asked[0] for entry in turn.row.entries]
    assert ask is not None
    end = play(program, "i", 0, begun, [Answered("", 2, 0, 1, "1")], NOW)
    assert isinstance(end, Turn)
    assert end.end is not None
    assert order == ["other task", "answered"]


@pytest.mark.parametrize("is_endless", [False, True])
def test_the_budget_is_the_codes_alone_and_holds_behind_an_answer(is_endless: bool) -> None:
    asked: list[int] = []

    async def code(one: Any) -> None:
        await one(1)
        while is_endless:
            pass

    def slow(ask: Ask) -> Answered:
        asked.append(ask.number)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        return answer(ask)

    budget = Watchdog(seconds=0.1).install()
    try:
        _, trouble = started(code, slow, budget=budget)
    finally:
        budget.uninstall()
    assert isinstance(trouble, Overrun if is_endless else Turn)
    assert asked == [1]


def test_code_that_catches_its_stop_is_not_forgiven_by_the_next_answer() -> None:
    """The budget begins anew behind an answer, and forgot that it was spent: the turn went on for ever, and counted."""
    asked: list[int] = []

    async def code(one: Any) -> None:
        try:
            while True:
                pass
        except BaseException:
            await one(1)
        await one(2)

    def noted(ask: Ask) -> Answered:
        asked.append(ask.number)
        return answer(ask)

    budget = Watchdog(seconds=0.1).install()
    try:
        _, trouble = started(code, noted, budget=budget)
    finally:
        budget.uninstall()
    assert isinstance(trouble, Overrun)
    assert asked == []
