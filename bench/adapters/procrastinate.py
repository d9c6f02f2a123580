"""Procrastinate: async worker of concurrency 20 (1, 10 and 50 were slower or the same), uvloop, done ones deleted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench.adapters import contest

logging.getLogger("procrastinate").setLevel(logging.ERROR)
app = App(connector=PsycopgConnector(conninfo=contest.URL))
tally = contest.tally()


@app.task(name="work")
async def handle(n: int, text: str) -> None:
    tally.saw(n)


def prepare(_: SimpleNamespace) -> None:
    with app.replace_connector(SyncPsycopgConnector(conninfo=contest.URL)) as opened, opened.open():
        opened.schema_manager.apply_schema()


def publish(params: SimpleNamespace) -> dict[str, Any]:
    with app.replace_connector(SyncPsycopgConnector(conninfo=contest.URL)) as opened, opened.open():

        def one(body: dict[str, Any]) -> None:
            handle.defer(**body)

        def many(bodies: Sequence[dict[str, Any]]) -> None:
            handle.batch_defer(*bodies)

        return contest.publish(params, one, many)


async def work(_: SimpleNamespace) -> None:
    async with app.open_async():
        contest.gate()
        await app.run_worker_async(concurrency=20, delete_jobs="successful", listen_notify=True)


if __name__ == "__main__":
    contest.main(prepare=prepare, publish=publish, work=lambda p: uvloop.run(work(p)))
