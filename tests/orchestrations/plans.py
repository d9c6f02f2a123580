"""Random orchestrations: a plan is JSON, `interpret` runs it, and everything that the code can see goes to a trace.

The trace is the result, so two runs of a plan are equal if their code saw the same. Used by the simulation and by the
corpus of recorded journals.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.failures import ActivityFailed, CallFailed, UndoFailed
from holdfast.orchestrations.flow import Flow

Plan = list[Any]


class Declined(Exception):
    """Declared, so it comes back as itself."""


@activity(errors={"Declined": Declined})
def work(value: Any) -> Any:
    if isinstance(value, int) and value % 7 == 3:
        raise Declined(value)
    if isinstance(value, int) and value % 11 == 5:
        raise OSError("no route")
    return {"got": value}


@orchestration(name="interpret")
async def interpret(plan: Plan, flow: Flow) -> Any:
    trace: list[Any] = []
    try:
        await Runner(flow, trace).run(plan)
    finally:
        trace.append(["end", flow.now.isoformat()])
    return trace


class Runner:
    def __init__(self, flow: Flow, trace: list[Any]) -> None:
        self.flow, self.trace = flow, trace
        self.lock = asyncio.Lock()

    def note(self, *what: Any) -> None:
        self.trace.append([*what, self.flow.now.timestamp()])
        if len(self.trace) % 5 == 0:
            self.flow.status = {"done": len(self.trace)}

    async def run(self, plan: Plan) -> Any:
        for step in plan:
            await getattr(self, f"do_{step[0]}")(*step[1:])
        return len(plan)

    async def do_call(self, value: int) -> None:
        try:
            self.note("call", value, await work(value))
        except (CallFailed, Declined) as error:
            self.note("failed", value, type(error).__name__, str(error))

    async def do_inline(self, value: int) -> None:
        try:
            self.note("inline", value, await work.using(inline=True)(value))
        except (CallFailed, Declined) as error:
            self.note("inline failed", value, type(error).__name__)

    async def do_raise(self, value: int) -> None:
        self.note("raise", await work(value))

    async def do_sleep(self, seconds: float) -> None:
        await self.flow.sleep(seconds, jitter=0.1)
        self.note("slept", seconds)

    async def do_uuid(self) -> None:
        self.note("uuid", str(self.flow.uuid()), self.flow.random.random())

    async def do_once(self, value: int) -> None:
        self.note("once", self.flow.once(lambda: [value], name="once"))

    async def do_signal(self, name: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                self.note("signal", await self.flow.signal(name))
        except TimeoutError:
            self.note("no signal", name)

    async def do_first(self, *plans: Plan) -> None:
        entries = {f"e{index}": self.guarded(plan) for index, plan in enumerate(plans)}
        first = await self.flow.first(**entries)
        self.note("first", first.name, first.value)

    async def do_gather(self, *plans: Plan) -> None:
        found = await asyncio.gather(*(self.guarded(plan) for plan in plans), return_exceptions=True)
        self.note("gathered", [each if isinstance(each, int) else type(each).__name__ for each in found])

    async def do_group(self, *plans: Plan) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for plan in plans:
                    group.create_task(self.guarded(plan))
        except* (CallFailed, Declined) as errors:
            self.note("group", sorted(type(each).__name__ for each in errors.exceptions))

    async def do_map(self, values: list[int], at_once: int) -> None:
        try:
            self.note("map", await self.flow.map(work, values, at_once=at_once))
        except (ActivityFailed, Declined) as error:
            self.note("map failed", str(error))

    async def do_saga(self, plan: Plan, value: int) -> None:
        try:
            async with self.flow.saga() as undo:
                undo(work, value)
                undo(self.run, [["call", value + 1]])
                await self.run(plan)
                self.note("saga", await work(value))
        except (CallFailed, Declined, UndoFailed) as error:
            self.note("undone", type(error).__name__)

    async def do_lock(self, plan: Plan) -> None:
        async with self.lock:
            self.note("locked")
            await self.run([step for step in plan if step[0] in ("call", "sleep")])

    async def do_child(self, plan: Plan) -> None:
        try:
            self.note("child", len(await interpret(plan)))
        except CallFailed as error:
            self.note("child failed", error.error.type)

    async def do_done(self, *values: int) -> None:
        try:
            async for each in self.flow.as_done([work(value) for value in values]):
                self.note("done", each)
        except (CallFailed, Declined) as error:
            self.note("done failed", str(error))

    async def do_patched(self) -> None:
        if asyncio.current_task() is not None and not self.lock.locked():
            self.note("patched")

    async def do_again(self, plan: Plan) -> None:
        if (
            asyncio.current_task()
            and asyncio.current_task().get_name() == "interpret"
            and self.flow.execution < 2
        ):  # type: ignore[union-attr]
            self.flow.again(plan)

    async def guarded(self, plan: Plan) -> int:
        """Notes how it is left, also by cancellation: the order of that is what plain asyncio leaves to chance."""
        try:
            return int(await self.run(plan))
        except asyncio.CancelledError:
            self.note("cancelled", len(plan))
            raise
        finally:
            self.note("left")


def draw(seed: object, depth: int = 3) -> Plan:
    """A random plan."""
    return _plan(Random(f"plan/{seed}"), depth)


def _plan(dice: Random, depth: int) -> Plan:
    return [_step(dice, depth) for _ in range(dice.randint(1, 4))]


def _step(dice: Random, depth: int) -> list[Any]:
    simple = (
        "call",
        "call",
        "inline",
        "inline",
        "raise",
        "sleep",
        "uuid",
        "once",
        "signal",
        "map",
        "done",
        "patched",
    )
    nested = ("first", "gather", "group", "saga", "lock", "child", "again")
    kind = dice.choice(simple + nested if depth else simple)
    number = dice.randint(0, 40)
    match kind:
        case "call" | "inline" | "raise" | "once":
            return [kind, number]
        case "sleep":
            return [kind, dice.choice((0, 0.25, 2, 10, 3600))]
        case "uuid" | "patched":
            return [kind]
        case "signal":
            return [kind, dice.choice("abc"), dice.choice((0.001, 1, 30))]
        case "map":
            return [kind, [dice.randint(0, 40) for _ in range(dice.randint(0, 6))], dice.randint(1, 3)]
        case "done":
            return [kind, *(dice.randint(0, 40) for _ in range(dice.randint(1, 4)))]
        case "first" | "gather" | "group":
            return [kind, *(_plan(dice, depth - 1) for _ in range(dice.randint(1, 4)))]
        case "saga":
            return [kind, _plan(dice, depth - 1), number]
        case _:
            return [kind, _plan(dice, depth - 1)]
