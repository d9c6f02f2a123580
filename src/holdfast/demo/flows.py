"""The orchestration of the workflow scenario: payment, approval, parcels in parallel, and the undoing of steps.

Worker processes import it as `holdfast.demo.flows:app`. Each activity writes one row in the transaction that also ends
it and stores its answer, so the rows say how often each step took effect.
"""

from __future__ import annotations

import asyncio
import os

from .. import Context, Flow, Holdfast, RetryPolicy
from .story import DATABASE

PARCELS = 3
FAILS_EVERY = 10  # orders whose shipping fails for good
APPROVED_EVERY = 7  # orders that wait for a person
STARTS_MAX = 50
PATIENT = RetryPolicy(attempts_max=STARTS_MAX, base=0.0, factor=1.0, cap=0.0)


class NoRoad(Exception):
    """Nobody ships there: another try is useless."""


def make(database: str) -> Holdfast:
    """The application, on this file."""
    app = Holdfast(f"sqlite:///{database}", lease=4.0, heartbeat=1.0)

    @app.activity(retry=PATIENT)
    async def charge(order: int, ctx: Context) -> str:
        return await effect(ctx, order, "charge")

    @app.activity(retry=PATIENT)
    async def refund(order: int, ctx: Context) -> str:
        return await effect(ctx, order, "refund")

    @app.activity(retry=PATIENT)
    async def pack(parcel: tuple[int, int], ctx: Context) -> str:
        order, number = parcel
        return await effect(ctx, order, f"pack-{number}")

    @app.activity(retry=PATIENT)
    async def ship(order: int, ctx: Context) -> str:
        return await effect(ctx, order, "ship")

    @app.orchestration(version="1", max_attempts=STARTS_MAX)
    async def fulfil(order: int, flow: Flow) -> str:
        async with flow.saga() as undo:
            await charge(order)
            undo(refund, order)
            await asyncio.sleep(0.1)
            if order % APPROVED_EVERY == 0:
                await flow.signal("approved", str)
            await asyncio.gather(*(pack((order, number)) for number in range(PARCELS)))
            if order % FAILS_EVERY == 0:
                raise NoRoad(f"order {order}")
            return await ship(order)

    return app


async def effect(ctx: Context, order: int, step: str) -> str:
    """One row of the shop's, in one commit with the end of the activity and its answer."""
    answer = f"{step} of {order}"
    async with ctx.transaction() as db:
        db.execute("insert into effect (instance, step) values (?, ?)", (f"order-{order}", step))
        ctx.answer(answer)
    return answer


app = make(os.environ.get(DATABASE, "holdfast-demo.db"))
