"""The handlers of the demo's shop; worker processes import it as `holdfast.demo.shop:app`.

Everything here is what a user of Holdfast would write, except the faults, which are in the messages.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from dataclasses import dataclass

from .. import Context, Holdfast, RetryPolicy
from .story import DATABASE, STARTS_MAX, diary_of

app = Holdfast(f"sqlite:///{os.environ.get(DATABASE, 'holdfast-demo.db')}", lease=6.0, heartbeat=2.0)
quickly = RetryPolicy(attempts_max=STARTS_MAX, base=0.1, factor=2.0, cap=1.0, jitter=0.2)


@dataclass
class Step:
    order: int
    cents: int
    seconds: float
    busy: int = 0
    cursed: bool = False


@dataclass
class Points:
    customer: int
    order: int
    points: int
    busy: int = 0


@app.handler("order.*", retry=quickly)
def keep_books(step: Step, ctx: Context) -> None:
    note_start(ctx)
    if step.cursed:
        os.kill(os.getpid(), signal.SIGKILL)  # as a crash in C code or the kernel's OOM killer would
    time.sleep(step.seconds)
    if ctx.attempt <= step.busy:
        raise ConnectionError("the bank did not answer")
    with ctx.transaction(sqlite3.Connection) as db:
        write_ledger(db, ctx, f"order {step.order}: {step.cents} cents, {ctx.type}")


@app.handler("points.earned", retry=quickly)
async def give_points(points: Points, ctx: Context) -> None:
    note_start(ctx)
    await asyncio.sleep(0.02)
    if ctx.attempt <= points.busy:
        raise TimeoutError("the points service was slow")
    async with ctx.transaction(sqlite3.Connection) as db:
        write_ledger(db, ctx, f"customer {points.customer}: {points.points} points")


def write_ledger(db: sqlite3.Connection, ctx: Context, entry: str) -> None:
    row = (str(ctx.id), ctx.stream, entry)
    db.execute("insert into ledger (message, stream, entry) values (?, ?, ?)", row)


def note_start(ctx: Context) -> None:
    """Write one line for each start of a handler, outside every transaction: a crash or a rollback cannot undo it."""
    diary = os.open(diary_of(os.environ[DATABASE]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(diary, f"{ctx.id} {ctx.attempt} {os.getpid()}\n".encode())
    finally:
        os.close(diary)
