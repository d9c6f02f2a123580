"""The application of the worker processes in these tests: its messages say what their handler does.

A body has `n` and perhaps `act`; every start is written to a file past every transaction, as `[n, attempt, process]`.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.store import SqliteStore


def setting(name: str, default: Any) -> Any:
    text = os.environ.get(f"LAB_{name}")
    return default if text is None else json.loads(text)


FOLDER = Path(os.environ.get("LAB_FOLDER", "."))
STARTS_MAX = setting("STARTS_MAX", 3)

app = Holdfast(os.environ.get("LAB_URL", "sqlite:///:memory:"), **setting("SETTINGS", {}))
at_once = RetryPolicy(attempts_max=STARTS_MAX, base=0.0, factor=1.0, cap=0.0)
options = {"retry": at_once, **setting("OPTIONS", {})}


def note_start(n: Any, ctx: Context) -> None:
    line = json.dumps([n, ctx.attempt, os.getpid()]) + "\n"
    file = os.open(FOLDER / "starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.005)


def act(what: str) -> None:
    """Things that go wrong at once."""
    match what:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(0)
        case "exit loudly":
            os._exit(3)
        case "block":  # busy enough to compete for Python's lock, without a core of its own for seconds
            while True:
                sum(range(100_000))
                time.sleep(0.02)
        case "recurse":
            act("recurse")
        case "deep":  # until the stack of the process is used up
            sys.setrecursionlimit(2**31 - 1)
            threading.stack_size(0)
            overflow()
        case "memory":
            raise MemoryError
        case "hungry":  # a real one: the process may have no more than it has
            with at_most_so_much_memory():
                bytearray(2**34)
        case "killed for hunger":  # what the kernel does when Python cannot even raise
            with at_most_so_much_memory():
                try:
                    bytearray(2**34)
                except MemoryError:
                    os.kill(os.getpid(), signal.SIGKILL)
        case "system exit":
            raise SystemExit(3)
        case "fail":
            raise RuntimeError("as it was told")


@contextmanager
def at_most_so_much_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**33, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def overflow() -> Any:
    """Recursion through C, which no limit of Python's ends: the stack overflows."""
    function = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: function())
    return function()


@app.handler("trouble", **options)
async def trouble(body: dict, ctx: Context) -> None:
    note_start(body["n"], ctx)
    if body.get("stop") and ctx.attempt == 1:
        stop_between_writes()
    act(body.get("act", ""))
    if "seconds" in body and not (FOLDER / "hurry").exists():
        await asyncio.sleep(body["seconds"])
    if "reach" in body:
        (FOLDER / body["reach"]).touch()
        while not (FOLDER / body["until"]).exists():  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.005)


@app.handler("thread", **options)
def in_thread(body: dict, ctx: Context) -> None:
    note_start(body["n"], ctx)
    act(body.get("act", ""))
    if "reach" in body:
        (FOLDER / body["reach"]).touch()
        wait_for(body["until"])


@app.handler("sleeper", **options)
async def sleeper(body: dict, ctx: Context) -> None:
    """Blocks the loop."""
    note_start(body["n"], ctx)
    time.sleep(body["seconds"])  # noqa: ASYNC251 - that is the trouble


@app.handler("effect", **options)
def effect(body: dict, ctx: Context) -> None:
    """Writes one row in the engine's transaction. `stop` names where it stops its own process: a zombie to be."""
    note_start(body["n"], ctx)
    stop = body.get("stop") if ctx.attempt == 1 else None
    if stop == "before":
        stop_between_writes()
    if stop == "committing":
        stop_before_commit()
    with ctx.transaction() as db:
        values = "(?, ?)" if "sqlite" in app.url else "(%s, %s)"
        db.execute(f"insert into effect (n, worker) values {values}", (body["n"], str(os.getpid())))
        if stop == "after":
            stop_here()


def stop_between_writes() -> None:
    """Not while this process writes: a stopped writer holds everybody's lock on SQLite."""
    with app.store._turn if isinstance(app.store, SqliteStore) else nullcontext():
        stop_here()


def stop_here() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.2)  # it takes effect while we sleep, and not some lines later


def stop_before_commit() -> None:
    """Stop this process between the settlement and the COMMIT of the next transaction."""
    plan = app.store.engine.settle

    def settle_and_stop(*arguments: Any, **options: Any) -> Any:
        held = yield from plan(*arguments, **options)
        app.store.engine.settle = plan  # type: ignore[method-assign]
        stop_here()
        return held

    app.store.engine.settle = settle_and_stop  # type: ignore[assignment]
