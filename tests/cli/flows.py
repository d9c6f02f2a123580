"""Orchestrations of the shop, always in the same state: for what `holdfast orchestrations` shows."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from holdfast import Flow, Holdfast, RetryPolicy
from holdfast.clock import MovableClock
from holdfast.orchestrations.journal import message_id
from tests.cli.stage import FILE, URL
from tests.operations.world import NOON


def app(clock: MovableClock, url: str = URL) -> Holdfast:
    """The application that the command line finds."""
    shop = Holdfast(url, clock=clock)

    @shop.activity(breaker=shop.breaker("stripe"))
    async def charge(cents: int) -> str:
        return f"receipt-{cents}"

    @shop.activity()
    async def pack(item: str) -> str:
        return f"parcel-{item}"

    @shop.activity(retry=RetryPolicy(attempts_max=1))
    async def post(order: int) -> None:
        raise ConnectionError("post.example.com: 443")

    @shop.orchestration(version="2")
    async def fulfil(order: int, flow: Flow) -> str:
        flow.status = {"step": "payment"}
        receipt = await charge(100 * order)
        flow.status = {"step": "parcels"}
        await asyncio.gather(*(pack(f"{order}-{n}") for n in range(6)))
        if order == 8:
            await post(order)
        async with asyncio.timeout(3 * 86_400):
            who = await flow.signal("approved", str)
        return f"{receipt}, approved by {who}"

    return shop


def build(folder: Path) -> tuple[Path, MovableClock]:
    """The file as it is before every command."""
    clock = MovableClock(NOON)
    shop = app(clock, f"sqlite:///{folder / FILE}")
    shop.migrate()
    declared = shop.orchestrations.declared["fulfil@2"]
    for order in (6, 7, 8, 9):
        shop.orchestrations.start(declared, order, id=f"order-{order}", attributes={"customer": f"{order}0"})
    drain(shop, "fulfil@2")
    clock.advance(seconds=2)
    shop.operations.messages.park(message_id("order-9", 0, 1))
    drain(shop, "charge")
    clock.advance(milliseconds=400)
    drain(shop, "fulfil@2")
    for number in (5, 6, 7):
        shop.operations.messages.park(message_id("order-7", 0, number))
    clock.advance(seconds=3)
    drain(shop)
    shop.orchestrations.signal("order-6", "approved", "Ann")
    drain(shop)
    clock.advance(minutes=12)
    shop.operations.by("anna").breakers.trip("stripe", why="the bank is being moved", seconds=600.0)
    shop.operations.messages.retry(message_id("order-9", 0, 1))
    shop.orchestrations.place.memory.forget()
    shop.close()
    with sqlite3.connect(folder / FILE) as database:
        database.execute("pragma wal_checkpoint(truncate)")
    return folder / FILE, clock


def drain(shop: Holdfast, *queues: str) -> None:
    shop.prepare()

    async def run() -> None:
        try:
            await shop.worker(until_idle=True, queues=queues or None).run()
        finally:
            await shop.store.aclose()

    asyncio.run(run())
