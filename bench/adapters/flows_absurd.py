"""absurd tasks with steps: its sync worker with BENCH_THREADS at once, batches of 50, polling every 10 ms.

Its schema comes with `absurdctl`, which is installed by name as the client is.
"""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import absurdctl
import psycopg
from absurd_sdk import Absurd

from bench.adapters import contest, flows

QUEUE = "flow"


def made() -> Absurd:
    app = Absurd(contest.URL, queue_name=QUEUE)

    @app.register_task(name="flow")
    def flow(params: Any, ctx: Any) -> int:
        n: int = params["n"]
        flows.begun(n)
        for number in range(flows.STEPS):
            ctx.step(f"step{number}", lambda number=number: flows.step(n, number))
        flows.ended(n)
        return n

    return app


def prepare(_: SimpleNamespace) -> None:
    with psycopg.connect(contest.URL, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    made().create_queue(QUEUE)


def publish(params: SimpleNamespace) -> dict[str, Any]:
    begun, app = time.monotonic(), made()
    for n in flows.inputs(params):
        app.spawn("flow", {"n": n})
    return flows.told(params, begun)


def work(_: SimpleNamespace) -> None:
    app = made()
    contest.on_stop(lambda: os._exit(0))
    contest.gate()
    app.start_worker(concurrency=flows.THREADS, batch_size=50, poll_interval=0.01)


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
