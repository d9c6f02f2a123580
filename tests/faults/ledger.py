"""An application whose handler writes its effect in the transaction that settles its message."""

from __future__ import annotations

import os

from holdfast import Context, Holdfast, RetryPolicy

app = Holdfast(os.environ.get("LAB_URL", "sqlite:///:memory:"), lease=5, heartbeat=1)
soon = RetryPolicy(attempts_max=50, base=0.05, factor=1.0, cap=0.05)


@app.handler("ledger", retry=soon)
async def book(body: dict, ctx: Context) -> None:
    async with ctx.transaction() as db:
        await db.execute("insert into effect values (%s)", (body["n"],))
