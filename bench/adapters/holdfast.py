"""Holdfast with its defaults, history on. BENCH_KIND says which handler, BENCH_QUEUES how many subscribe."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest
from bench.adapters.holdfast_handlers import KINDS
from holdfast import Holdfast, NewMessage
from holdfast.processes.supervisor import run_worker

KIND = os.environ.get("BENCH_KIND", "async")
app = Holdfast(contest.URL if "://" in contest.URL else f"sqlite:///{contest.URL}")
for number in range(int(os.environ.get("BENCH_QUEUES", "1"))):
    app.handler("work", name=f"work{number}")(KINDS[KIND])


def prepare(_: SimpleNamespace) -> None:
    app.migrate()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    def stream(body: dict[str, Any]) -> str | None:
        return f"s{body['n'] % params.streams}" if params.streams else None

    def message(body: dict[str, Any]) -> NewMessage:
        return app.message("work", body, stream=stream(body))

    return contest.publish(
        params,
        lambda body: app.publish("work", body, stream=stream(body)),
        lambda bodies: app.publish_many(map(message, bodies)),
    )


async def work_here() -> None:
    worker = app.worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    contest.gate()
    await worker.run()


def work(params: SimpleNamespace) -> None:
    if params.processes > 1 or KIND == "killer":
        contest.gate()
        run_worker(app, "bench.adapters.holdfast:app", processes=params.processes)
    else:
        asyncio.run(work_here())


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
