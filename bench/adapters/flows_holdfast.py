"""Orchestrations of Holdfast. BENCH_KIND says which: see flows_programs.py."""

from __future__ import annotations

import asyncio
import signal
import time
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest, flows
from bench.adapters.flows_programs import PROGRAM, app
from holdfast.orchestrations.outside import Begin
from holdfast.processes.supervisor import run_worker
from holdfast.store.statement import Plan

CHUNK = 500


@app.handler("beat", name="beat")
async def beat(n: int) -> None:
    flows.ended(n)


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
        begin: Begin = app.orchestrations._begin(PROGRAM.program, n, str(n), None, None)
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
