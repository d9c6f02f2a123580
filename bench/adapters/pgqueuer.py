"""PGQueuer on asyncpg: a pool, uvloop, batches of 100 (10, 100 and 500 were tried), `pgq autovac`, durable tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.adapters import contest


def prepare(_: SimpleNamespace) -> None:
    for command in ("install", "autovac"):
        line = [sys.executable, "-m", "pgqueuer", "--pg-dsn", contest.URL, command]
        subprocess.run(line, check=True, capture_output=True)


async def publish(params: SimpleNamespace) -> dict[str, Any]:
    async with asyncpg.create_pool(contest.URL, min_size=1, max_size=1) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def one(body: dict[str, Any]) -> None:
            await queries.enqueue("work", json.dumps(body).encode())

        async def many(bodies: Sequence[dict[str, Any]]) -> None:
            payloads = [json.dumps(body).encode() for body in bodies]
            await queries.enqueue(["work"] * len(bodies), payloads, [0] * len(bodies))

        return await contest.apublish(params, one, many)


async def work(_: SimpleNamespace) -> None:
    tally = contest.tally()
    async with asyncpg.create_pool(contest.URL, min_size=2, max_size=10) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("work")
        async def handle(message: Job) -> None:
            tally.saw(json.loads(message.payload or b"")["n"])

        contest.on_stop(queuer.shutdown.set)
        contest.gate()
        await queuer.run(batch_size=100)


if __name__ == "__main__":
    contest.main(
        prepare=prepare, publish=lambda p: uvloop.run(publish(p)), work=lambda p: uvloop.run(work(p))
    )
