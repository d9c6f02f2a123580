"""Deadlines while workers run: on time, by any of them, each request once."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Holdfast, InvalidMessage, Refused
from holdfast.model.request import TIMEOUT, Happening, RequestState
from holdfast.model.work import Ticked
from holdfast.operations import Filter
from holdfast.requests import Request
from holdfast.requests.hooks import hook_id
from holdfast.requests.sweeping import step
from holdfast.rules.rhythm import LOOKS_EVERY
from holdfast.store.plans import requests as plans
from tests.requests.desk import Desk
from tests.requests.desk import desk as made

TICK = timedelta(microseconds=1)


@pytest.mark.covers("X33")
def test_a_worker_knows_the_moment_at_which_to_look(desk: Desk) -> None:
    """Behind the soft threshold, then behind the deadline; with nothing to wait for it is once a second, of 60 s."""
    app, start = desk.app, desk.clock.instant
    app.prepare()
    sweep = step(lambda: app.store, app.requests.pen)
    assert sweep() == Ticked(0, start, None)
    app.request(desk.grading, 1, variant="writing")
    assert sweep().next_at == start + timedelta(minutes=15) + TICK
    desk.clock.advance(minutes=15)
    assert sweep().did == 0
    desk.clock.advance(microseconds=1)
    delayed = sweep()
    assert (delayed.did, delayed.queues) == (1, ("grading.delayed",))
    assert delayed.next_at == start + timedelta(minutes=20) + TICK
    desk.clock.instant = start + timedelta(minutes=20)
    assert sweep().did == 0
    desk.clock.advance(microseconds=1)
    ended = sweep()
    assert (ended.did, ended.next_at, ended.queues) == (1, None, ("grading.failed",))
    assert LOOKS_EVERY <= 60


@pytest.mark.covers("X61", "X62")
def test_a_request_that_cannot_be_ended_does_not_hold_up_the_others(desk: Desk) -> None:
    """A message of somebody else's has the id of its hook, and is pending in the hook's queue."""
    app = desk.app
    app.prepare()
    bad = app.request(desk.grading, 1, variant="writing").id
    good = [app.request(desk.grading, n, variant="writing").id for n in range(3)]
    hook = hook_id(bad, app.requests.get(bad).created_at, Happening.FAILED)
    app.publish("something.else", id=hook, queue="grading.failed")
    desk.clock.advance(minutes=21)
    sweep = step(lambda: app.store, app.requests.pen)
    assert sweep().did == 3
    assert {app.requests.get(id).state for id in good} == {RequestState.FAILED}
    assert app.requests.get(bad).state is RequestState.OPEN
    app.operations.messages.cancel(hook)
    desk.clock.advance(minutes=2)
    assert sweep().did == 1
    assert app.requests.get(bad).reason == TIMEOUT


@pytest.mark.covers("X62")
@pytest.mark.parametrize("column", ["deadline", "created_at", "soft_at"])
def test_a_row_that_cannot_be_read_does_not_hold_up_the_others(sqlite_path: Path, column: str) -> None:
    """SQLite keeps any text in any column; PostgreSQL has constraints for what no worker could read."""
    desk = made(f"sqlite:///{sqlite_path}")
    app = desk.app
    app.prepare()
    bad = app.request(desk.grading, 1, variant="writing").id
    good = app.request(desk.grading, 2, variant="writing").id
    with sqlite3.connect(sqlite_path) as db:
        db.execute(f"update holdfast_request set {column} = 'soon' where id = ?", [str(bad)])
    db.close()
    desk.clock.advance(minutes=21)
    step(lambda: app.store, app.requests.pen)()
    assert app.requests.get(good).state is RequestState.FAILED
    app.operations.status()
    app.operations.doctor()
    assert app.operations.requests.list()
    app.close()


def test_a_deadline_is_at_most_ten_years_ahead(desk: Desk) -> None:
    """At the end of the calendar nobody can say what comes after it, so such a row, if there is one, waits alone."""
    app, last = desk.app, datetime.max.replace(tzinfo=UTC)
    app.prepare()
    with pytest.raises(InvalidMessage, match="more than ten years ahead"):
        app.request(desk.grading, 1, deadline=last)
    far = app.request(desk.grading, 1, deadline=desk.clock.instant + timedelta(days=3660)).id
    with pytest.raises(Refused, match="more than ten years ahead"):
        app.requests.extend(far, timedelta(days=1))
    app.store.run(plans.extend(far, last, None, last))
    sweep = step(lambda: app.store, app.requests.pen)
    assert sweep() == Ticked(0, desk.clock.instant, None)
    with pytest.raises(Refused, match="more than ten years ahead"):
        app.requests.extend(far, timedelta(days=1))


@pytest.mark.covers("X61")
def test_an_id_that_is_used_again_when_its_request_is_gone_calls_the_hook_again(desk: Desk) -> None:
    app, own = desk.app, uuid4()
    app.prepare()
    app.operations.queues.pause("grading.failed")
    sweep = step(lambda: app.store, app.requests.pen)
    for _ in range(2):
        assert not app.request(desk.grading, 1, variant="writing", id=own).duplicate
        desk.clock.advance(minutes=21)
        assert sweep().did == 1
        desk.clock.advance(days=400)
        app.operations.housekeeping()
    assert len(app.operations.messages.find(Filter(queue="grading.failed"))) == 2


@pytest.mark.covers("X33", "V39")
async def test_two_workers_fail_each_request_once_in_real_time(url: str) -> None:
    """Asked while they sleep, and sooner than they would look by themselves."""
    app = Holdfast(url)
    kind = app.request_kind("grading", sla=0.2, soft=0.5)
    heard: list[tuple[str, Any]] = []
    all_heard = asyncio.Event()

    def hear(what: str, request: Request[Any, Any]) -> None:
        heard.append((what, request))
        if sum(each == "failed" for each, _ in heard) == 20:
            all_heard.set()

    @kind.failed
    async def failed(request: Request[Any, Any]) -> None:
        hear("failed", request)

    @kind.delayed
    async def delayed(request: Request[Any, Any]) -> None:
        hear("delayed", request)

    async with app.running(name="one"), app.running(name="two"):
        await asyncio.sleep(0)
        ids = [(await app.arequest(kind, n)).id for n in range(20)]
        async with asyncio.timeout(30):
            await all_heard.wait()
        requests = [await app.requests.aget(id) for id in ids]
    assert {request.state for request in requests} == {RequestState.FAILED}
    assert sorted(request.body for what, request in heard if what == "failed") == list(range(20))
    told = [request.body for what, request in heard if what == "delayed"]
    assert len(told) == len(set(told))
    for request in requests:
        assert request.timed_out_at is not None
        assert request.timed_out_at > request.deadline
    app.close()
