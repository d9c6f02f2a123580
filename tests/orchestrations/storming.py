"""The application of the worker processes in the storm: ten steps, each of which leaves one row of the user's."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from uuid import uuid4

from holdfast import Context, Flow, Holdfast, RetryPolicy
from tests.worker.trouble import FOLDER

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
    # Differs in another process: replay must give the stored one.
    rolled = flow.once(lambda: os.getpid(), name="pid")
    for _ in range(STEPS):
        await asyncio.sleep(0.01)
        n = await step(n)
    return n - first if rolled else -1


@app.activity(inline=True, retry=PATIENT)
async def link(given: list[Any]) -> str:
    """A step of a chain. It notes what it was started with, past every transaction; each run gives another result."""
    notes = os.open(FOLDER / "links", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(notes, f"{json.dumps(given)}\n".encode())
    os.close(notes)
    await asyncio.sleep(0.1)
    return uuid4().hex


@app.orchestration(max_attempts=100)
async def links(n: int, flow: Flow) -> str:
    last = ""
    for step in range(STEPS):
        last = await link([flow.id, step, last])
    return last
