"""The handlers of our lines: the no-op that everybody has, and those that only we are measured with."""

from __future__ import annotations

import os
import signal
from typing import Any

from bench.adapters import contest
from holdfast import Context, Dead

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


KINDS = {
    "async": handle,
    "sync": blocking,
    "transaction": transactional,
    "poison": poisoned,
    "killer": killed,
}
