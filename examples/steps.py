"""A handler of several steps, in systems that Holdfast knows nothing of. A retry skips the steps that are done.

Run it: python steps.py
"""

import asyncio

from holdfast import Context, Holdfast, RetryPolicy

app = Holdfast("sqlite:///steps.db")
log: list[str] = []
shipped = asyncio.Event()


@app.handler(
    "order.paid", steps=["reserved", "charged"], retry=RetryPolicy(attempts_max=5, base=0.05, cap=1.0)
)
async def fulfil(order: dict, ctx: Context) -> None:
    if not ctx.did("reserved"):
        log.append("reserve")
        ctx.mark("reserved")
    if not ctx.did("charged"):
        # Between the charge and the mark a crash may come: the same key each time lets the bank see a repetition.
        log.append("charge")
        assert ctx.idempotency_key == f"{ctx.id}:fulfil"
        ctx.mark("charged")
    if ctx.attempt < 3:
        raise ConnectionError("the parcel service does not answer")
    log.append("ship")
    shipped.set()


async def main() -> None:
    app.publish("order.paid", {"id": 1})
    async with app.running():
        await shipped.wait()
    print("done, in three attempts:", ", ".join(log))
    assert log == ["reserve", "charge", "ship"]


if __name__ == "__main__":
    asyncio.run(main())
