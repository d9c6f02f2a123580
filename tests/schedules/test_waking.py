"""Whoever sets a time that is near wakes a worker that sleeps; whoever sets a far one does not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import Context, Holdfast, every, yearly
from holdfast.store.plans import engine


@pytest.mark.one_postgres
def test_a_worker_is_told_when_something_is_due_soon(postgres_dsn: str) -> None:
    url = postgres_dsn
    app = Holdfast(url)
    app.migrate()
    app.prepare()
    number = app.store.run(engine.register_worker("sleeps", ["due"]))

    def told() -> list[str]:
        return [each.payload for each in db.notifies(timeout=0.2)]

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("listen holdfast")
        app.set_schedule("soon", every(seconds=1), "due")
        assert told() == []  # nobody sleeps
        db.execute("update holdfast.worker set asleep = true where id = %s", [number])
        app.set_schedule("far", yearly(datetime.now(UTC) + timedelta(days=9), "09:00"), "due")
        assert told() == []
        app.set_schedule("soon", every(seconds=1), "due")
        assert told() == ["due"]
        later = app.publish("due", delay=3600).id
        told()
        app.move(later, delay=0)
        assert "due" in told()
    app.close()


async def test_what_is_set_while_a_worker_sleeps_is_fired(url: str) -> None:
    app, fired = Holdfast(url), asyncio.Event()

    @app.handler("due")
    async def handle(body: object, ctx: Context) -> None:
        fired.set()

    async with app.running():
        await asyncio.sleep(0.3)
        await app.aset_schedule("soon", every(seconds=1), "due")
        async with asyncio.timeout(30):
            await fired.wait()
    await app.store.aclose()
