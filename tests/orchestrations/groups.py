"""A TaskGroup whose clean-up fails while it is cancelled: the one known case in which Pythons differ."""

from __future__ import annotations

import asyncio

from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.flow import Flow
from tests.orchestrations.engine import Engine


@activity()
def work(value: int) -> int:
    return value


@orchestration()
async def groups(flow: Flow) -> str:
    async def member() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise ValueError("the clean-up fails")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(member())
            await asyncio.sleep(500)
    except* ValueError:
        await work(1)  # Python 3.13 keeps the cancellation, and it comes here
    await work(2)
    await flow.signal("end")
    return "went on"


def cancelled_group() -> Engine:
    engine = Engine(groups, activities=[work])
    engine.start(groups)
    engine.cancel("i", after=10)
    return engine.run()
