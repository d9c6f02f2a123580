"""Instances in memory: bounded, checked by their turn, and closed when they leave, whatever their code does."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from holdfast.orchestrations.budget import Alarm
from holdfast.orchestrations.cache import ASLEEP, Cache
from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.flow import Flow
from holdfast.orchestrations.journal import Call, Entry, Row, Started, fingerprint
from holdfast.orchestrations.loop import NumberedTask, _undead
from holdfast.orchestrations.outcome import Turn
from holdfast.orchestrations.replay import CodeChanged
from holdfast.orchestrations.turn import Instance
from tests.orchestrations.engine import START, Engine

cleaned: list[tuple[str, int]] = []


@activity()
def pack(item: str) -> str:
    return item


@orchestration()
async def parked(name: str, flow: Flow) -> str:
    async def side() -> None:
        try:
            await pack("side")
        finally:
            cleaned.append((name, threading.get_ident()))
            flow.log.error("not seen")
            await pack("while it is closed")

    async with asyncio.TaskGroup() as group:
        group.create_task(side())
        try:
            return await pack(name)
        finally:
            await pack("while it is closed")


def park(name: str, size: int = 10) -> Instance:
    instance = Instance(parked.program, name)
    turn = instance.turn([Started("m", 1, f'"{name}"', f"{name}/0")], START)
    assert isinstance(turn, Turn)
    instance.size = size
    return instance


def test_tasks_of_many_instances_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tasks of all instances have the number 1. asyncio keeps all tasks of a process in one set."""
    compared = 0

    def same(self: object, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    held = [park(f"{number}") for number in range(100)]
    monkeypatch.setattr(NumberedTask, "__eq__", same)
    held += [park(f"{number}") for number in range(100, 200)]
    assert compared < 100  # and not 100 times 100
    for each in held:
        each.close()


def test_the_least_recently_used_leaves_first() -> None:
    cache = Cache(count=2)
    cleaned.clear()
    for name in "abc":
        cache.put(park(name))
    assert [name for name, _ in cleaned] == ["a"]
    assert (len(cache), cache.evicted) == (2, 1)
    held = cache.take("b", 0, 1)
    assert held is not None
    cache.put(held)
    cache.put(park("d"))
    assert [name for name, _ in cleaned] == ["a", "c"]
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_bytes_of_journals_are_bounded() -> None:
    cache = Cache(size=100)
    for name in "abcd":
        cache.put(park(name, size=40))
    assert (len(cache), cache.bytes) == (2, 80)
    cache.put(park("large", size=101))
    assert (len(cache), cache.bytes) == (2, 80)
    cache.clear()


@orchestration()
async def asleep(seconds: int, flow: Flow) -> None:
    if seconds < 0:
        await flow.first(signal=flow.signal("wake", str), timer=flow.sleep(-seconds))
    await flow.sleep(seconds)


def sleep(name: str, seconds: int) -> Instance:
    instance = Instance(asleep.program, name)
    assert isinstance(instance.turn([Started("m", 1, str(seconds), f"{name}/0")], START), Turn)
    return instance


def test_few_of_those_that_sleep_are_kept() -> None:
    """100,000 that wait for timers had 10,000 in memory, which were of use to none of them."""
    cache = Cache()
    for number in range(ASLEEP + 10):
        cache.put(sleep(f"long{number}", 3600))
        cache.put(sleep(f"short{number}", 30))
        cache.put(sleep(f"signal{number}", -3600))
    assert (len(cache), cache.evicted) == (3 * ASLEEP + 20, 10)
    assert cache.take("long9", 0, 1) is None
    last = cache.take(f"long{ASLEEP + 9}", 0, 1)
    assert last is not None
    cache.put(last)  # a signal came that nobody waits for
    assert cache.evicted == 10
    cache.clear()
    assert len(cache) == 0


@pytest.mark.parametrize(("execution", "turns"), [(0, 0), (0, 2), (1, 1)])
def test_an_instance_at_another_turn_is_dropped(execution: int, turns: int) -> None:
    cache = Cache()
    cache.put(park("a"))
    cleaned.clear()
    assert cache.take("a", execution, turns) is None
    assert [name for name, _ in cleaned] == ["a"]
    assert cache.take("a", 0, 1) is None
    assert (cache.hits, cache.misses) == (0, 2)


def test_closing_cleans_up_on_this_thread_and_leaves_nothing_to_the_garbage_collector() -> None:
    """H16: suspended coroutines with `finally`, evicted while the collector runs all the time."""
    cleaned.clear()
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache = Cache(count=5)
            for number in range(100):
                cache.put(park(str(number)))
            cache.clear()
            gc.collect()
    finally:
        gc.set_threshold(*threshold)
    assert {thread for _, thread in cleaned} == {threading.get_ident()}
    assert len(cleaned) == 100


def test_tasks_that_were_stopped_in_the_middle_are_ended() -> None:
    """Tasks that were created and had not begun when the turn was stopped."""
    ended: list[int] = []

    async def member(number: int) -> None:
        try:
            await pack(str(number))
        finally:
            ended.append(number)

    @orchestration()
    async def stopped(flow: Flow) -> None:
        tasks = [asyncio.create_task(member(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(member(number)) for number in range(3, 6)]
        await pack("another")
        raise AssertionError(tasks)

    before = len(_undead)
    recorded = Row(id="i", execution=0, turn=1, at=1, entries=(Entry(Started("m", 1, None, "i/0"), CALLS),))
    instance = Instance(stopped.program, "i")
    instance.load([recorded])
    instance.catch_up()
    assert isinstance(instance.turn([], START), CodeChanged)
    instance.close()
    assert ended == [0, 1, 2]  # the others had not begun
    assert len(_undead) == before


CALLS = (*(Call("pack", fingerprint(str(number))) for number in range(3)), Call("pack", fingerprint("other")))


def test_closing_is_silent_and_asks_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []

    @orchestration()
    async def cleans_up(flow: Flow) -> None:
        try:
            await pack("a")
        finally:
            flow.log.error("not seen")
            try:
                flow.once(lambda: said.append("once"), name="once")
            finally:
                pack_at_last.start("b")

    instance = Instance(cleans_up.program, "i")
    instance.turn([Started("m", 1, None, "i/0")], START)
    instance.close()
    assert (said, caplog.records, instance.waits().asks) == ([], [], ())


@orchestration()
async def pack_at_last(item: str) -> None:
    await pack(item)


def test_closing_asks_for_nothing_and_ends_code_that_refuses() -> None:
    @orchestration()
    async def refuses(flow: Flow) -> None:
        while True:
            try:
                await pack("a")
            except BaseException:
                continue

    alarm = Alarm(0.05).install()
    try:
        instance = Instance(refuses.program, "i", budget=alarm)
        turn = instance.turn([Started("m", 1, None, "i/0")], START)
        assert isinstance(turn, Turn)
        instance.close()
    finally:
        alarm.uninstall()


def test_an_instance_that_ended_is_not_kept() -> None:
    @orchestration()
    async def short() -> int:
        return 1

    engine = Engine(short)
    engine.start(short)
    engine.run()
    assert len(engine.cache) == 0


PROGRAM = """
import asyncio, sys
from holdfast import Holdfast

app = Holdfast(sys.argv[1])

@app.orchestration()
async def parked(n: int) -> int:
    try:
        await asyncio.sleep(60)
    finally:
        print("cleaned", n)
    return n

app.migrate()
for n in range(3):
    parked.start(n)
asyncio.run(app.worker(until_idle=True).run())
print("bye", len(app.orchestrations.place.memory.cache))
"""


def test_a_program_that_ends_without_closing_its_application_says_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "dev", "-c", PROGRAM, f"sqlite:///{tmp_path}/x.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[0] == "bye 3"
    assert "destroyed" not in done.stderr
    assert "ResourceWarning" not in done.stderr, done.stderr
    assert done.returncode == 0
