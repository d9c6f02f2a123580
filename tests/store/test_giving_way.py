"""A loop that has work gives way to the thread in which SQLite writes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.store import giving_way
from holdfast.store.giving_way import GivesWay


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy must not end a wait that a test wants."""
    monkeypatch.setattr(giving_way, "PIECE_SECONDS", 60.0)


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


async def test_a_thread_that_waits_for_somebody_else_is_waited_for_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example for the transaction of a handler."""
    monkeypatch.setattr(giving_way, "PIECE_SECONDS", 0.01)
    monkeypatch.setattr(giving_way, "WAY_SECONDS", 0.015)
    gives = GivesWay()
    gives.begin()
    await gives.wait()
    await gives.wait()
    monkeypatch.setattr(giving_way, "PIECE_SECONDS", 60.0)
    async with asyncio.timeout(20):
        await gives.wait()  # at once
    gives.begin()
    waiting = asyncio.create_task(gives.wait())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    gives.end()
    await waiting
