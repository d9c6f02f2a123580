"""An application that is closed leaves no connection open, whoever opened it."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable

import pytest

from holdfast import Holdfast
from holdfast.store.plans import engine


async def a_worker(app: Holdfast) -> None:
    @app.handler("t")
    async def handle(body: object) -> None: ...

    app.prepare()
    app.publish("t", 1)
    await app.worker(until_idle=True).run()
    app.close()


async def a_loop_that_has_ended(app: Holdfast) -> None:
    there = threading.Thread(target=lambda: asyncio.run(app.store.arun(engine.renames())))  # type: ignore[arg-type]
    there.start()
    there.join()
    app.close()


async def one_in_use_meanwhile(app: Holdfast) -> None:
    async with app.store.atransaction():
        app.close()


@pytest.mark.parametrize("leaves", [a_worker, a_loop_that_has_ended, one_in_use_meanwhile])
async def test_nothing_stays_open(url: str, leaves: Callable[[Holdfast], Awaitable[None]]) -> None:
    """A loop that has ended cannot close its connections: the application does."""
    await leaves(Holdfast(url))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in told if issubclass(each.category, ResourceWarning)] == []
