"""What a hostile reader found: each was a way to stop workers, lose order or do things twice."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
import uuid_utils
from msgspec import structs

from holdfast import Holdfast
from holdfast.errors import InvalidMessage
from holdfast.model.work import Leased, Report, Want
from holdfast.store.plans import engine
from holdfast.store.plans import engine_sqlite as plans_sqlite
from tests.worker.lab import Lab


def publish_unlooked(app: Holdfast, type: str, body: object, **options: Any) -> None:
    """With an own id, as if its look-up had missed the other message."""
    app.publish_many([structs.replace(app.message(type, body, **options), id_is_given=False)])


@pytest.mark.covers("X61")
def test_a_timer_whose_id_is_used_again_stops_nobody(lab: Lab) -> None:
    """Its insert was refused in the exchange of every worker, for ever. Then it was deleted."""
    app, clock = lab.still()
    seen: list[str] = []

    @app.handler("a", "b")
    async def note(body: str) -> None:
        seen.append(body)

    twice = uuid4()
    app.publish("a", "timer", stream="s", delay=60, id=twice)
    publish_unlooked(app, "a", "first", stream="s", id=twice)
    clock.advance(minutes=2)
    app.publish("b", "innocent")
    run_until_idle(app)
    assert seen == ["first", "innocent"]
    assert [(json.loads(row.body), row.reason) for row in lab.rows("dead")] == [("timer", 12)]
    assert lab.rows("message") == []


@pytest.mark.covers("X61")
def test_a_message_may_die_twice_under_one_id(lab: Lab) -> None:
    """The second death was refused by the key of the dead letters, and took the worker with it."""
    app, _ = lab.still()

    @app.handler("a", retry="immediate")
    async def fail(body: int) -> None:
        raise RuntimeError(body)

    twice = uuid4()
    for n in (1, 2):
        publish_unlooked(app, "a", n, id=twice)
        run_until_idle(app)
    assert sorted(json.loads(row["body"]) for row in lab.rows("dead")) == [1, 2]


def test_a_late_subscriber_gets_everything_in_order(lab: Lab) -> None:
    """More than one helping was adopted in two, and what was published in between overtook."""
    producer, _ = lab.still()
    producer.migrate()
    producer.publish_many(producer.message("n", n, stream="s") for n in range(1500))
    app, _ = lab.still()
    seen: list[int] = []

    @app.handler("n")
    async def note(n: int) -> None:
        seen.append(n)

    app.prepare()
    app.publish("n", 1500, stream="s")
    run_until_idle(app)
    assert seen == list(range(1501))


def test_every_handler_that_may_run_has_a_thread(sqlite_lab: Lab) -> None:
    """Beyond 256 they waited for a thread, were out of time before they began, and ran all the same."""
    app, _ = sqlite_lab.still()
    gate = threading.Barrier(300, timeout=30)

    @app.handler("n", concurrency=300)
    def meet(n: int) -> None:
        gate.wait()

    app.publish_many(app.message("n", n) for n in range(300))
    run_until_idle(app)
    assert sqlite_lab.is_empty()
    assert sqlite_lab.rows("dead") == []


def test_a_claim_reads_no_more_bodies_than_it_hands_out(sqlite_lab: Lab) -> None:
    app = sqlite_lab.app()
    app.migrate()
    body = "x" * 1_000_000
    for _ in range(4):
        app.publish_many(
            app.message("big", body, queue="q", stream=s) for s in (None, "s") for _ in range(12)
        )
    report = Report(1, want=[Want("q", 100)], total=500, bytes_max=3_000_000)
    tracemalloc.start()
    batch = app.store.run(engine.exchange(report))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(batch.work) == 3
    assert peak < 12_000_000


async def test_what_cannot_be_unpacked_ends_the_worker(
    sqlite_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unpacked beside the exchange, where nobody waits for it: it must not go wrong in silence.

    A row that cannot be read is set aside (test_impossible.py); this is an error of ours.
    """
    app = sqlite_lab.app()

    @app.handler("a")
    async def nothing(body: int) -> None: ...

    app.publish_many(app.message("a", n) for n in range(1500))

    def breaks(rows: Any) -> list[Leased]:
        assert all(row[0] != 1200 for row in rows), "as told"
        return reads(rows)

    reads = plans_sqlite.leased
    monkeypatch.setattr(plans_sqlite, "leased", breaks)
    with pytest.raises(AssertionError, match="as told"):
        await asyncio.wait_for(app.worker().run(), 20)
    monkeypatch.undo()
    # What had ended by then was handed in, and nothing was done twice.
    ended = [row.id for row in sqlite_lab.rows("history")]
    assert len(ended) == len(set(ended)) >= 500
    assert sqlite_lab.rows("dead") == []
    assert all(row.attempts == 0 for row in sqlite_lab.rows("message"))


async def test_nothing_waits_packed_while_a_limit_is_looked_up(sqlite_lab: Lab) -> None:
    """That may take as long as the database likes, and what is not unpacked is not renewed."""
    app, packed = sqlite_lab.app(), list[bool]()

    @app.handler("a", rate="100000/s")
    async def nothing(body: int) -> None: ...

    app.publish_many(app.message("a", n) for n in range(1500))
    app.prepare()
    worker = app.worker(until_idle=True)
    look = worker.gate.look

    async def listening() -> None:
        packed.append(worker.pacing.has_arrived)
        await look()

    worker.gate.look = listening  # type: ignore[method-assign]
    await asyncio.wait_for(worker.run(), 60)
    assert len(packed) > 3
    assert not any(packed)


IDS: list[Any] = [
    UUID("0190b3a5-0000-7000-8000-000000000001"),
    "0190b3a5-0000-7000-8000-000000000001",
    "0190B3A500007000800000000000 0001".replace(" ", ""),
    uuid_utils.UUID("0190b3a5-0000-7000-8000-000000000001"),
]


@pytest.mark.parametrize("id", IDS, ids=lambda id: f"{type(id).__module__}.{type(id).__name__}")
def test_an_id_of_ones_own_is_a_uuid_whatever_it_came_as(lab: Lab, id: Any) -> None:
    app = lab.app()
    app.handler("a", name="q")(lambda body: None)
    published = app.publish_many([app.message("a", 1, id=id), app.message("a", 2)])
    assert published[0].id == IDS[0]
    assert type(published[0].id) is UUID
    assert IDS[0] in {row.id for row in lab.rows("message")}


@pytest.mark.parametrize("id", ["order-17", 17, b"0123456789abcdef", ""])
def test_an_id_that_is_none_is_refused_before_anything_is_stored(lab: Lab, id: Any) -> None:
    """Found in review: on SQLite it was stored, and ended every worker that claimed it."""
    with pytest.raises(InvalidMessage, match="is not a UUID"):
        lab.app().publish("a", 1, id=id)


def test_a_time_beyond_all_calendars_is_refused(lab: Lab) -> None:
    late = datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))
    with pytest.raises(InvalidMessage, match="years 1 to 9999"):
        lab.app().publish("a", 1, deadline=late)


def run_until_idle(app: Holdfast) -> None:
    app.prepare()
    asyncio.run(app.worker(until_idle=True).run())
