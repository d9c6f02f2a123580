"""What waits for us, for a token or for its turn to have a transaction, does not pay for it. Found by review."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast import Context
from tests.worker.lab import Lab, auntil, settled


@pytest.mark.parametrize("concurrency", [1, 20])
async def test_what_waits_for_a_token_stays_in_hand(lab: Lab, concurrency: int) -> None:
    """It was given back and claimed again hundreds of times, until that counted, and it was called poison."""
    app = lab.app()
    seen: Counter[int] = Counter()

    @app.handler("a", name="rated", rate="100/s", concurrency=concurrency, retry="steady")
    async def work(body: dict) -> None:
        seen[body["s"]] += 1

    app.publish_many(app.message("a", {"s": s}, stream=f"s{s}") for s in range(20) for _ in range(50))
    async with lab.working(app):
        await auntil(lambda: sum(seen.values()) >= 250, lab.describe)
    assert lab.rows("dead") == []
    pending = lab.rows("message")
    assert max(row.refunds for row in pending) <= 5
    assert max(row.attempts for row in pending) == 0
    assert len(seen) == 20, "every stream had its turn"


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_waiting_for_a_turn_is_not_the_handlers_time(pg_lab: Lab, kind: str) -> None:
    """With two connections the last of twenty waits ten times as long as each may run."""
    lab = pg_lab
    app = lab.app(connections=2)

    @app.handler("a", name="async", timeout=0.5, retry="immediate")
    async def wait(body: dict, ctx: Context) -> None:
        async with ctx.transaction():
            await asyncio.sleep(0.1)

    @app.handler("b", name="def", timeout=0.5, retry="immediate", concurrency=20)
    def block(body: dict, ctx: Context) -> None:
        with ctx.transaction() as db:
            db.execute("select pg_sleep(0.1)")

    app.publish_many(app.message("a" if kind == "async" else "b", {"n": n}) for n in range(40))
    async with lab.working(app):
        await settled(lab)
    assert lab.rows("dead") == []
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}


async def test_a_handler_that_is_slow_in_its_turn_is_out_of_time(pg_lab: Lab) -> None:
    lab = pg_lab
    app = lab.app(connections=1)
    ended: list[Any] = []

    @app.handler("a", timeout=0.3, retry="immediate")
    async def wait(body: dict, ctx: Context) -> None:
        async with ctx.transaction():
            await asyncio.sleep(10)
        ended.append(body)

    app.publish_many(app.message("a", {"n": n}) for n in range(2))
    async with lab.working(app):
        await settled(lab)
    assert ended == []
    assert {row.last_reason for row in lab.rows("dead")} == {4}
