"""The orchestrations of flows_holdfast.py, with Holdfast's defaults, by the kind of line (BENCH_KIND).

queue      steps by queue, one after another
inline     steps inside the turn, each recorded before the next one begins
turn       steps inside the turn, recorded with it
chain, chain-inline   one such workflow alone; what is measured is the time between its steps
killed, killed-inline   many of these; every step has a place in the tally
fan        one workflow that gathers all its steps
parked     instances that sleep for a month
poison     like queue, and in one of a hundred the first step fails at each of its 5 starts
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.adapters import contest, flows
from holdfast import Holdfast, RetryPolicy

app = Holdfast(contest.URL if "://" in contest.URL else f"sqlite:///{contest.URL}")


async def step(given: tuple[int, int]) -> str:
    return flows.step(*given)


by_queue = app.activity(name="step")(step)
in_turn = app.activity(name="inline-step", inline=True)(step)
with_turn = app.activity(name="turn-step", inline="turn")(step)


@app.activity(name="broken", retry=RetryPolicy(attempts_max=5, base=0))
async def broken(n: int) -> str:
    raise RuntimeError("one in a hundred")


def steps_of(name: str, one: Any, *, is_counted: bool = True) -> Any:
    # In a chain the steps are counted, and not the workflow.
    @app.orchestration(version="1", name=name)
    async def steps(n: int) -> int:
        if is_counted:
            flows.begun(n)
        if flows.KIND == "poison" and n % 100 == 50:
            await broken(n)
        for number in range(flows.STEPS):
            await one((n, number))
        if is_counted:
            flows.ended(n)
        return n

    return steps


@app.orchestration(version="1", name="fan")
async def fan(n: int) -> int:
    flows.begun(n)
    answers = await asyncio.gather(*(by_queue((n, number)) for number in range(flows.STEPS)))
    assert len(answers) == flows.STEPS
    flows.ended(n)
    return n


@app.orchestration(version="1", name="parked")
async def parked(n: int) -> int:
    flows.begun(n)
    await asyncio.sleep(30 * 86_400)
    flows.ended(n)
    return n


PROGRAMS = {
    "queue": steps_of("queue", by_queue),
    "inline": steps_of("inline", in_turn),
    "turn": steps_of("turn", with_turn),
    "chain": steps_of("chain", by_queue, is_counted=False),
    "chain-inline": steps_of("chain-inline", in_turn, is_counted=False),
    "fan": fan,
    "parked": parked,
}
PROGRAM = PROGRAMS[flows.KIND.replace("killed", "chain").replace("poison", "queue")]
