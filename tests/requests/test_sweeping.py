"""Deadlines while workers run: on time, by any of them, each request once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.request import RequestState
from holdfast.requests import Request
from holdfast.requests.sweeping import step
from holdfast.rules.rhythm import LOOKS_EVERY
from tests.requests.desk import Desk

TICK = timedelta(microseconds=1)


@pytest.mark.covers("X33")
def test_a_worker_knows_the_moment_at_which_to_look(desk: Desk) -> None:
    """Behind the soft threshold, then behind the deadline; with nothing to wait for it is once a second, of 60 s."""
    app, start = desk.app, desk.clock.instant
    app.prepare()
    sweep = step(lambda: app.store, app.requests.pen)
    assert sweep() == (0, start, None, ())
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
