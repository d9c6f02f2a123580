"""What may not be in an orchestration is refused by name, with what to use instead; what must work, works."""

# ruff: noqa: ASYNC221, ASYNC230, ASYNC110 - that is what is tested

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import uuid
from contextlib import closing
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast.orchestrations.declared import activity, orchestration
from holdfast.orchestrations.flow import Flow
from holdfast.orchestrations.journal import Started
from holdfast.orchestrations.outcome import Overrun, Turn
from holdfast.orchestrations.refusals import REFUSALS, advice
from holdfast.orchestrations.turn import Instance, play
from tests.orchestrations.engine import START, Engine


@activity()
def pack(item: str) -> str:
    return item


async def nap() -> None:
    await asyncio.sleep(1)


async def wait_for() -> Any:
    return await asyncio.wait_for(pack("a"), 5)


async def wait_for_nothing() -> Any:
    return await asyncio.wait_for(asyncio.create_task(nap()), 0)


async def wait() -> Any:
    return await asyncio.wait([asyncio.create_task(nap())])


async def wait_with_timeout() -> Any:
    return await asyncio.wait([asyncio.create_task(nap())], timeout=3)


async def as_completed() -> Any:
    return [await each for each in asyncio.as_completed([nap(), nap()])]


async def as_completed_of_tasks() -> Any:
    return [await each for each in asyncio.as_completed([asyncio.create_task(nap())])]


async def to_thread() -> Any:
    return await asyncio.to_thread(os.getpid)


async def thread() -> Any:
    threading.Thread(target=os.getpid).start()


async def connection() -> Any:
    return await asyncio.open_connection("localhost", 1)


async def plain_socket() -> Any:
    return socket.create_connection(("127.0.0.1", 1))


async def database() -> Any:
    return sqlite3.connect(":memory:")


async def process() -> Any:
    return subprocess.run(["true"])


async def async_process() -> Any:
    return await asyncio.create_subprocess_exec("true")


async def shell() -> Any:
    return os.system("true")


async def write() -> Any:
    return open("never-written", "w")


async def low_level_write() -> Any:
    return os.open("never-written", os.O_CREAT | os.O_WRONLY)


async def own_loop() -> Any:
    return asyncio.get_running_loop().run_until_complete(nap())


async def run() -> Any:
    return asyncio.run(nap())


async def runner() -> Any:
    with asyncio.Runner() as made:
        return made.run(nap())


class Other(asyncio.BaseEventLoop):
    """A loop that was made elsewhere."""


async def other_loop() -> Any:
    with closing(Other()) as other:
        return other.run_until_complete(nap())


async def signal_handler() -> Any:
    return asyncio.get_running_loop().add_signal_handler(1, nap)


async def task_factory() -> Any:
    return asyncio.get_running_loop().set_task_factory(None)


REFUSED = [
    (wait_for, "asyncio.wait_for", "asyncio.timeout"),
    (wait_for_nothing, "asyncio.wait_for", "asyncio.timeout"),
    (wait, "asyncio.wait cannot", "flow.first"),
    (wait_with_timeout, "asyncio.wait cannot", "flow.first"),
    (as_completed, "asyncio.as_completed", "flow.as_done"),
    (as_completed_of_tasks, "asyncio.as_completed", "flow.as_done"),
    (to_thread, "asyncio.to_thread", "an activity"),
    (thread, "threading.Thread", "an activity"),
    (connection, "a database", "an activity"),
    (plain_socket, "a database", "an activity"),
    (database, "a database", "an activity"),
    (process, "subprocess", "an activity"),
    (async_process, "subprocess", "an activity"),
    (shell, "os.system", "an activity"),
    (write, "file opened for writing", "an activity"),
    (low_level_write, "file opened for writing", "an activity"),
    (own_loop, "run_until_complete", "`await`"),
    (run, "asyncio.run", "`await`"),
    (runner, "asyncio.run", "`await`"),
    (other_loop, "asyncio.run", "`await`"),
    (signal_handler, "signal handler", "flow.signal"),
    (task_factory, "task factory", "create_task"),
]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
# Loops that were not made whole.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.covers("X59")
@pytest.mark.parametrize(("function", "name", "instead"), REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_it_is_refused_by_name(function: Any, name: str, instead: str) -> None:
    @orchestration()
    async def code(flow: Flow) -> Any:
        return await function()

    engine = Engine(code, activities=[pack])
    engine.start(code)
    engine.run()
    failure = engine.failure()
    assert failure.type == "UsageError"
    assert name in failure.text
    assert instead in failure.text
    assert not Path("never-written").exists()
    del engine
    gc.collect()  # coroutines that nobody awaits are reported here, where that is expected


def test_the_table_has_something_for_everything() -> None:
    named = {
        refusal for refusal in REFUSALS for _, name, _ in REFUSED if name.split(" cannot")[0] in refusal.what
    }
    elsewhere = {refusal.what for refusal in REFUSALS} - {refusal.what for refusal in named}
    assert {each.partition(" (")[0] for each in elsewhere} == {"time.sleep", "A call of the application"}


def test_what_reads_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tracebacks, lazy imports, time zones, logging to a file that is turned over."""
    handler = RotatingFileHandler(tmp_path / "log", maxBytes=10, backupCount=2)
    logger = logging.getLogger("tests.rotated")
    logger.addHandler(handler)
    sys.modules.pop("colorsys", None)

    @orchestration()
    async def code(flow: Flow) -> Any:
        import colorsys

        try:
            raise ValueError("x")
        except ValueError:
            logger.exception("turned over")
            logger.error("at each line")
            text = traceback.format_exc()
        with open(__file__) as file:
            lines = len(file.readlines())
        where = ZoneInfo("Europe/Vienna").utcoffset(datetime(2026, 7, 1))
        return [colorsys.rgb_to_hls(0, 0, 0)[0], "raise ValueError" in text, lines > 100, str(where)]

    engine = Engine(code)
    engine.start(code)
    try:
        assert engine.run().result() == [0.0, True, True, "2:00:00"]
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert len(list(tmp_path.iterdir())) > 1


def test_nothing_is_refused_outside_a_turn_or_in_another_thread(tmp_path: Path) -> None:
    beside: list[str] = []
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(10)
        (tmp_path / "other").write_text("x")
        beside.append("written")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    @orchestration()
    async def code(flow: Flow) -> Any:
        inside.set()
        done.wait(10)
        return flow.once(lambda: (tmp_path / "once").write_text("x"), name="once")

    turn = play(code.program, "i", 0, [], [Started("m", 1, None, "i/0")], START)
    thread.join()
    assert isinstance(turn, Turn)
    assert turn.end is not None
    assert (turn.end.result, turn.used_once, beside) == ("1", True, ["written"])
    (tmp_path / "after").write_text("x")


@orchestration()
async def yields(flow: Flow) -> None:
    while True:
        await asyncio.sleep(0)


@orchestration()
async def cancelled_again(flow: Flow) -> None:
    """As a cancel scope of anyio does it: it cancels in each pass, and the code does not listen."""
    loop, own = asyncio.get_running_loop(), asyncio.current_task()

    def cancel() -> None:
        if own is not None:
            own.cancel()
        loop.call_soon(cancel)

    cancel()
    while True:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            pass


@pytest.mark.parametrize("program", [yields, cancelled_again], ids=lambda each: each.name)
def test_code_that_goes_round_in_circles_is_stopped(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """H10"""
    monkeypatch.setattr("holdfast.orchestrations.loop.PASSES_MAX", 2_000)
    instance = Instance(program.program, "i")
    outcome = instance.turn([Started("m", 1, None, "i/0")], START)
    assert isinstance(outcome, Overrun)
    assert "asyncio.sleep(0)" in outcome.why
    instance.close()


async def uses_clocks(flow: Flow) -> Any:
    def inner() -> float:
        return random.random()

    now = datetime.now()
    return [time.time(), uuid.uuid4(), os.environ["HOME"], now, inner()]


async def is_careful(flow: Flow) -> Any:
    return [flow.now, flow.uuid(), flow.random.random(), random.Random(1).random(), time.strftime("%Y")]


def test_clocks_dice_and_environment_are_found_in_the_code() -> None:
    found = "\n".join(advice(uses_clocks))
    for what in ("time.time", "uuid.uuid4", "os.environ", "datetime.now", "random.random"):
        assert what in found
    assert advice(is_careful) == []
