"""The handler of the downtime scenario: greetings, each written to the ledger in the transaction that settles it.

Worker processes import it as `holdfast.demo.greeter:app`. The environment says by how much their clock is ahead of the
machine's: a day of downtime passes at once.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from .. import Context, Holdfast
from ..clock import SystemClock, wall_clock
from .story import DATABASE, diary_of

AHEAD = "HOLDFAST_DEMO_AHEAD"  # seconds
CATCH_UP, CATCH_UP_PER_SECOND, CATCH_UP_DOUBLES = "20/s", 20.0, 1.0


class ClockAhead(SystemClock):
    """The machine's clock, and so many seconds more."""

    def __init__(self, seconds: float) -> None:
        self.ahead = timedelta(seconds=seconds)

    def now(self) -> datetime | None:
        return wall_clock() + self.ahead


database = os.environ.get(DATABASE, "holdfast-demo.db")
app = Holdfast(
    f"sqlite:///{database}",
    clock=ClockAhead(float(os.environ.get(AHEAD, "0"))),
    lease=6.0,
    heartbeat=2.0,
    catch_up_doubles=CATCH_UP_DOUBLES,
)


@app.handler("greeting.due", name="greet", concurrency=1, catch_up=CATCH_UP)
async def greet(body: dict[str, str], ctx: Context) -> None:
    started = wall_clock().timestamp()
    note(
        f"{ctx.id} {os.getpid()} {started:.6f} {ctx.due_at.timestamp():.6f} {ctx.lateness.total_seconds():.6f}"
    )
    async with ctx.transaction() as db:
        db.execute("insert into ledger (message, entry) values (?, ?)", (str(ctx.id), body["who"]))


def note(line: str) -> None:
    """What began, and when: no table holds that."""
    diary = os.open(diary_of(database), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(diary, f"{line}\n".encode())
    finally:
        os.close(diary)
