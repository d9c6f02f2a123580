"""The application of the worker processes in the storm: ten steps, each of which leaves one row of the user's."""

from __future__ import annotations

import asyncio
import os

from holdfast import Context, Flow, Holdfast, RetryPolicy

PATIENT = RetryPolicy(attempts_max=100, base=0.0, factor=1.0, cap=0.0)
STEPS = 10

app = Holdfast(os.environ.get("LAB_URL", "sqlite:///:memory:"), lease=3.0, heartbeat=1.0)


@app.activity(retry=PATIENT)
async def step(n: int, ctx: Context) -> int:
    async with ctx.transaction() as db:
        written = db.execute(f"insert into effect (n) values ({n})")
        if asyncio.iscoroutine(written):
            await written
        ctx.answer(n + 1)
    return n + 1


@app.orchestration(max_attempts=100)
async def steps(n: int, flow: Flow) -> int:
    first = n
    rolled = flow.once(
        lambda: os.getpid(), name="pid"
    )  # differs in another process: replay must give the stored one
    for _ in range(STEPS):
        await asyncio.sleep(0.01)
        n = await step(n)
    return n - first if rolled else -1
