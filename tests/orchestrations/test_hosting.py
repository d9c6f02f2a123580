"""Turns inside a running event loop: from a plain callback, side by side with the host's own tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.flow import Flow
from holdfast.orchestrations.hosting import from_callback, run_turn
from holdfast.orchestrations.journal import Answered, Started
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.turn import Instance
from tests.orchestrations.engine import START


@activity()
def pack(item: int) -> int:
    return item


@orchestration()
async def fan(count: int, flow: Flow) -> int:
    return sum(await asyncio.gather(*(pack(number) for number in range(count))))


async def test_turns_run_inside_a_running_loop() -> None:
    host = asyncio.get_running_loop()
    instance = Instance(fan.program, "i")
    turn = await run_turn(instance, [Started("m", 1, "3", "i/0")], START, SystemClock())
    assert isinstance(turn, Turn)
    assert asyncio.get_running_loop() is host
    answers = [Answered(f"m{n}", 2, 0, n, str(n)) for n in (1, 2, 3)]
    turn = await run_turn(instance, answers, START, SystemClock())
    assert isinstance(turn, Turn)
    assert turn.end is not None
    assert turn.end.result == "6"
    instance.close()


async def test_a_turn_runs_outside_every_task_of_the_host() -> None:
    """Python 3.14 refuses a task inside a task."""
    assert await from_callback(asyncio.current_task) is None
    with pytest.raises(ZeroDivisionError):
        await from_callback(lambda: 1 // 0)


async def test_replay_makes_room_for_others() -> None:
    class Impatient:
        """Time is up at each look."""

        now = 0.0

        def monotonic(self) -> float:
            self.now += 0.02
            return self.now

    instance = Instance(fan.program, "i")
    first = instance.turn([Started("m", 1, "500", "i/0")], START)
    assert isinstance(first, Turn)
    instance.close()
    cold = Instance(fan.program, "i")
    cold.load([first.row])
    seen = 0

    async def other() -> None:
        nonlocal seen
        while True:
            seen += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    answers: list[Any] = [Answered(f"m{n}", 2, 0, n, "1") for n in range(1, 501)]
    turn = await run_turn(cold, answers, START, Impatient())
    beside.cancel()
    assert isinstance(turn, Turn)
    assert turn.end is not None
    assert seen > 5  # 500 starts in slices of 64
    cold.close()
