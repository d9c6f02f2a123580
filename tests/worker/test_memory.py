"""A backlog does not grow into a worker's memory, and a claim from a large one costs what one from a small one does."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.work import Report, Want
from holdfast.store import SqliteStore, sqlite
from holdfast.store.plans import engine
from holdfast.store.statement import Plan, Statement, drive
from tests.worker.lab import Lab, auntil, until

MEGABYTE = 1024 * 1024


def memory_of(pid: int) -> int:
    """The bytes that a process has for itself: not those of the database file, which SQLite maps into its memory."""
    with suppress(OSError):
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def backlog(app: Holdfast, count: int, size: int, **options: Any) -> None:
    body = {"text": "x" * size}
    for start in range(0, count, 1000):
        app.publish_many(app.message("a", body, **options) for _ in range(min(1000, count - start)))


async def test_what_is_held_is_bounded_in_bytes(lab: Lab) -> None:
    """However many handlers could run at once: bodies of 10 KiB, and room for ten of them."""
    app = lab.app(claim_bytes=100 * 1024, concurrency=1000)
    held: list[int] = []
    ended = 0

    @app.handler("a")
    async def work(body: dict) -> None:
        nonlocal ended
        held.append(worker.pacing.held_bytes)
        await asyncio.sleep(0.001)
        ended += 1

    backlog(app, 300, 10 * 1024)
    async with lab.working(app) as worker:
        await auntil(lambda: ended == 300, lab.describe)
    # A claim stops behind the message that reaches the limit, so it may go beyond it by that one.
    assert max(held) <= (100 + 11) * 1024
    assert max(held) > 50 * 1024


@pytest.mark.parametrize("stream", [None, "s"])
def test_a_worker_on_a_large_backlog_stays_small(lab: Lab, stream: str | None) -> None:
    """5,000 messages of 10 KiB, 50 MiB, none of which a worker with slow handlers needs at once."""
    app = lab.app()

    @app.handler("thread", name="in_thread")
    def in_thread(body: dict) -> None: ...

    app.prepare()
    body = {"n": 1, "text": "x" * 10 * 1024}
    for _ in range(5):
        app.publish_many(app.message("thread", body, stream=stream) for _ in range(1000))
    worker = lab.start()
    until(lambda: lab.starts(), lab.said)
    most = 0
    end = time.monotonic() + 60
    while not lab.is_empty() and time.monotonic() < end and len(lab.starts()) < 2000:
        most = max([most, *(memory_of(pid) for pid in worker.children())])
        time.sleep(0.02)
    assert 0 < most < 150 * MEGABYTE


def claim_steps(app: Holdfast, number: int) -> int:
    """How many instructions of its machine SQLite needs for a claim of a hundred, in hundreds; it is rolled back."""
    assert isinstance(app.store, SqliteStore)
    report = Report(number, want=[Want("work", 100)], total=100)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite.connect(app.store.path)) as db:
        db.execute("begin immediate")
        db.set_progress_handler(count, 100)
        batch = drive(app.store.bound(engine.exchange(report)), lambda s: sqlite.execute(db, s))
        db.set_progress_handler(None, 0)
        db.execute("rollback")
    assert len(batch.work) == 100
    return steps


def claim_blocks(app: Holdfast, _: int) -> int:
    """How many blocks PostgreSQL touches for a claim of a hundred: its cost, whatever else the machine does."""
    number = app.store.run(engine.register_worker("explains", ["work"]))
    report = Report(number, want=[Want("work", 100)], total=100)

    def explain() -> Plan[int]:
        asked = next(app.store.bound(engine.exchange(report)))
        ((plan,),) = yield Statement(f"explain (analyze, buffers, format json) {asked.sql}", asked.params)
        top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])

    blocks = [app.store.run(explain()) for _ in range(3)]
    app.store.run(engine.recover(worker=number, count=10_000))
    return min(blocks)


def is_drained(lab: Lab) -> bool:
    """Without counting what is left, and on SQLite without taking the worker's turn to write."""
    table = "holdfast_message" if lab.sqlite else "holdfast.message"
    return not lab.execute(f"select 1 from {table} limit 1")


@pytest.mark.faults("storms")
def test_a_million_messages(lab: Lab) -> None:
    """The worker's memory stays under 150 MB, and a claim costs at most twice what it costs at a thousand."""
    app = lab.app()

    @app.handler("a", name="work", retry="immediate")
    async def work(body: dict) -> None: ...

    app.prepare()
    number = app.store.run(engine.register_worker("measures", ["work"]))
    cost = claim_steps if lab.sqlite else claim_blocks
    backlog(app, 1000, 100)
    few = cost(app, number)
    backlog(app, 999_000, 100)
    many = cost(app, number)
    assert 0 < many <= 2 * few, (few, many)
    backlog(app, 2_000, 10 * 1024)
    (lab.folder / "quick.py").write_text(
        "import os\nfrom holdfast import Holdfast\napp = Holdfast(os.environ['LAB_URL'])\n"
        "@app.handler('a', name='work')\nasync def work(body: dict) -> None: ...\n"
    )
    worker = lab.start(target="quick:app", log="WARNING")
    most = 0

    def drained() -> bool:
        nonlocal most
        most = max([most, *(memory_of(pid) for pid in worker.children())])
        return is_drained(lab)

    until(drained, lab.said, 600)
    assert 0 < most < 150 * MEGABYTE
    assert lab.query("select count(*) from {history}") == [(1_002_000,)], lab.said()
