"""Holdfast with its defaults, history on. BENCH_KIND says which handler, BENCH_QUEUES how many subscribe."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

from bench.adapters import contest
from holdfast import Context, Dead, Holdfast
from holdfast.supervisor import run_worker

KIND = os.environ.get("BENCH_KIND", "async")
app = Holdfast(contest.URL if "://" in contest.URL else f"sqlite:///{contest.URL}")
tally = contest.tally()


async def handle(body: dict[str, Any]) -> None:
    tally.saw(body["n"])


def blocking(body: dict[str, Any]) -> None:
    tally.saw(body["n"])


async def transactional(body: dict[str, Any], ctx: Context) -> None:
    async with ctx.transaction() as connection:
        inserted = connection.execute(f"insert into business (n) values ({body['n']})")
        if contest.URL.startswith("postgresql"):
            await inserted
    tally.saw(body["n"])


async def poisoned(body: dict[str, Any]) -> None:
    tally.saw(body["n"])
    if body["n"] % 100 == 50:
        raise Dead("one in a hundred")


async def killed(body: dict[str, Any]) -> None:
    tally.saw(body["n"])
    if body["n"] % 1000 == 500:
        os.kill(os.getpid(), signal.SIGKILL)


HANDLERS = {
    "async": handle,
    "sync": blocking,
    "transaction": transactional,
    "poison": poisoned,
    "killer": killed,
}
for number in range(int(os.environ.get("BENCH_QUEUES", "1"))):
    app.handler("work", name=f"work{number}")(HANDLERS[KIND])


def prepare(_: SimpleNamespace) -> None:
    app.migrate()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    def message(body: dict[str, Any]) -> Any:
        return app.message("work", body, stream=f"s{body['n'] % params.streams}" if params.streams else None)

    return contest.publish(
        params,
        lambda body: app.publish_many([message(body)]),
        lambda bodies: app.publish_many(map(message, bodies)),
    )


async def work_here() -> None:
    worker = app.worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    contest.gate()
    await worker.run()


def work(params: SimpleNamespace) -> None:
    if params.processes > 1 or KIND == "killer":
        run_worker(app, "bench.adapters.holdfast_child:app", processes=params.processes)
    else:
        asyncio.run(work_here())


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=work)
