"""The handlers of the outage scenario: payments that need a bank, and invoices for which broken code is deployed.

Worker processes import it as `holdfast.demo.bank:app`. The bank is a file that says whether it is up, and a log of
every call that reached it. The environment says which version of the code runs, as in a deploy.
"""

from __future__ import annotations

import asyncio
import os

from .. import Context, Holdfast, RetryPolicy
from ..clock import wall_clock
from .story import DATABASE, diary_of

VERSION = "HOLDFAST_DEMO_VERSION"
BROKEN = "2"
DOWN = ".bank-is-down"  # the file beside the database that says so
COOLDOWN, TRIALS = 2.0, 3
CATCH_UP, CATCH_UP_PER_SECOND, CATCH_UP_DOUBLES = "20/s", 20.0, 1.0
STARTS_MAX = 3  # of an invoice

database = os.environ.get(DATABASE, "holdfast-demo.db")
app = Holdfast(f"sqlite:///{database}", lease=6.0, heartbeat=2.0)
app.breaker("bank", cooldown=COOLDOWN, trials=TRIALS, catch_up=CATCH_UP, catch_up_doubles=CATCH_UP_DOUBLES)
at_once = RetryPolicy(attempts_max=STARTS_MAX, base=0.0, factor=1.0, cap=0.0)


@app.handler("payment.due", breaker="bank", retry="brisk", concurrency=4)
async def collect(payment: dict[str, int], ctx: Context) -> None:
    await call_bank(ctx)


@app.handler("invoice.wanted", retry=at_once, concurrency=16)
async def write_invoice(order: dict[str, int], ctx: Context) -> None:
    # Version 2 reads a field that no order has: a bug that tests with made-up orders do not find.
    vat = order["vat"] if os.environ.get(VERSION) == BROKEN else order["net"] * 19 // 100
    async with ctx.transaction() as db:
        db.execute(
            "insert into ledger (message, entry) values (?, ?)", (str(ctx.id), str(order["net"] + vat))
        )


async def call_bank(ctx: Context) -> None:
    is_down = reach_bank(f"{ctx.id} {os.getpid()} {wall_clock().timestamp():.6f}")
    await asyncio.sleep(0.002)
    if is_down:
        raise ConnectionError("the bank does not answer")


def reach_bank(call: str) -> bool:
    """The bank: whether it is down. It logs every call."""
    is_down = os.path.exists(database + DOWN)
    diary = os.open(diary_of(database), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(diary, f"{call} {'down' if is_down else 'ok'}\n".encode())
    finally:
        os.close(diary)
    return is_down
