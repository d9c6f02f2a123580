"""Orchestrations of Holdfast, with its defaults. BENCH_KIND says which.

queue      steps by queue, one after another
inline     steps inside the turn, each recorded before the next one begins
turn       steps inside the turn, recorded with it
chain, chain-inline   one such workflow alone; what is measured is the time between its steps
killed     many of these; every step has a place in the tally
fan        one workflow that gathers all its steps
parked     instances that sleep for a month
poison     like queue, and in one of a hundred the first step fails at each of its 5 starts
"""

from __future__ import annotations

import asyncio
import signal
import time
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest, flows
from holdfast import Holdfast, RetryPolicy
from holdfast.orchestrations.outside import Begin
from holdfast.processes.supervisor import run_worker
from holdfast.store.statement import Plan

KIND = flows.KIND
CHUNK, MONTH = 500, 30 * 86_400
app = Holdfast(contest.URL if "://" in contest.URL else f"sqlite:///{contest.URL}")


@app.activity(name="step")
async def step(given: tuple[int, int]) -> str:
    return flows.step(*given)


@app.activity(name="inline-step", inline=True)
async def inline_step(given: tuple[int, int]) -> str:
    return flows.step(*given)


@app.activity(name="turn-step", inline="turn")
async def turn_step(given: tuple[int, int]) -> str:
    return flows.step(*given)


@app.activity(name="broken", retry=RetryPolicy(attempts_max=5, base=0))
async def broken(n: int) -> str:
    raise RuntimeError("one in a hundred")


@app.orchestration(version="1", name="queue")
async def by_queue(n: int) -> int:
    flows.begun(n)
    if KIND == "poison" and n % 100 == 50:
        await broken(n)
    for number in range(flows.STEPS):
        await step((n, number))
    flows.ended(n)
    return n


@app.orchestration(version="1", name="inline")
async def inline(n: int) -> int:
    flows.begun(n)
    for number in range(flows.STEPS):
        await inline_step((n, number))
    flows.ended(n)
    return n


@app.orchestration(version="1", name="turn")
async def with_the_turn(n: int) -> int:
    flows.begun(n)
    for number in range(flows.STEPS):
        await turn_step((n, number))
    flows.ended(n)
    return n


@app.orchestration(version="1", name="chain")
async def chain(n: int) -> int:
    for number in range(flows.STEPS):
        await step((n, number))
    return n


@app.orchestration(version="1", name="chain-inline")
async def chain_inline(n: int) -> int:
    for number in range(flows.STEPS):
        await inline_step((n, number))
    return n


@app.orchestration(version="1", name="fan")
async def fan(n: int) -> int:
    flows.begun(n)
    answers = await asyncio.gather(*(step((n, number)) for number in range(flows.STEPS)))
    assert len(answers) == flows.STEPS
    flows.ended(n)
    return n


@app.orchestration(version="1", name="parked")
async def parked(n: int) -> int:
    flows.begun(n)
    await asyncio.sleep(MONTH)
    flows.ended(n)
    return n


@app.handler("beat", name="beat")
async def beat(n: int) -> None:
    flows.ended(n)


PROGRAMS = {
    "queue": by_queue,
    "poison": by_queue,
    "inline": inline,
    "turn": with_the_turn,
    "chain": chain,
    "killed": chain,
    "chain-inline": chain_inline,
    "fan": fan,
    "parked": parked,
}


def prepare(_: SimpleNamespace) -> None:
    app.migrate()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    """Start instances, some hundred in each transaction; with `pause`, publish to another queue instead, one by one."""
    begun = time.monotonic()
    if params.pause:
        for count, n in enumerate(flows.inputs(params)):
            time.sleep(max(0.0, begun + count * params.pause - time.monotonic()))
            app.publish("beat", n)
            flows.tally.published[n] = time.monotonic()
    else:
        for first in range(params.first, params.first + params.n, CHUNK):
            app.store.run(started(range(first, min(first + CHUNK, params.first + params.n))))
    return flows.told(params, begun)


def started(which: range) -> Plan[None]:
    for n in which:
        begin: Begin = app.orchestrations._begin(PROGRAMS[KIND].program, n, str(n), None, None)
        yield from begin.plan()


async def work_here() -> None:
    worker = app.worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    contest.gate()
    await worker.run()


def work(params: SimpleNamespace) -> None:
    if params.processes > 1:
        contest.gate()
        run_worker(app, "bench.adapters.flows_holdfast:app", processes=params.processes)
    else:
        asyncio.run(work_here())


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
