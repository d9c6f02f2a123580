"""The demo's shop with the mistake that `ctx.transaction()` is there for: it writes first and settles later."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing

from holdfast import Context, Holdfast
from holdfast.demo.shop import Points, Step, note_start, quickly, write_ledger
from holdfast.demo.story import DATABASE

app = Holdfast(f"sqlite:///{os.environ[DATABASE]}", lease=6.0, heartbeat=2.0)


@app.handler("order.*", retry=quickly)
def keep_books(step: Step, ctx: Context) -> None:
    note_start(ctx)
    if step.cursed:
        os.kill(os.getpid(), signal.SIGKILL)
    write(ctx, step.busy)


@app.handler("points.earned", retry=quickly)
def give_points(points: Points, ctx: Context) -> None:
    note_start(ctx)
    write(ctx, points.busy)


def write(ctx: Context, busy: int) -> None:
    with closing(sqlite3.connect(os.environ[DATABASE], timeout=30)) as db, db:
        write_ledger(db, ctx, "written apart from the settlement")
    if ctx.attempt <= busy:
        raise ConnectionError("after the write")
