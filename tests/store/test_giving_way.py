"""A loop that has work gives way to the thread in which SQLite writes."""

from __future__ import annotations

import asyncio
import threading

from holdfast.store import giving_way
from holdfast.store.giving_way import GivesWay


async def test_a_loop_waits_while_plans_wait_or_run_and_not_for_the_commit() -> None:
    gives = GivesWay()
    async with asyncio.timeout(20):
        await gives.wait()  # nothing runs
        gives.begin()
        waiting = asyncio.create_task(gives.wait())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        thread = threading.Thread(target=gives.end)
        thread.start()
        await waiting
        thread.join()
        await gives.wait()


async def test_plans_that_were_handed_in_meanwhile_are_waited_for_too() -> None:
    gives = GivesWay()
    gives.begin()
    gives.end(over=False)
    waiting = asyncio.create_task(gives.wait())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    gives.end()
    await waiting


async def test_a_thread_that_waits_for_somebody_else_is_not_waited_for(monkeypatch: object) -> None:
    """For example for the transaction of a handler: the loop waits once, and briefly."""
    gives, loop = GivesWay(), asyncio.get_running_loop()
    gives.begin()
    await gives.wait()
    assert not gives._is_running
    begun = loop.time()
    await gives.wait()
    assert loop.time() - begun < giving_way.WAY_SECONDS
    gives.begin()
    waiting = asyncio.create_task(gives.wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    gives.end()
    await waiting
