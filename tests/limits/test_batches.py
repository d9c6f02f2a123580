"""Batch handlers: a neighbour that fails costs nobody else anything that counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import RetryPolicy
from tests.worker.lab import Lab, settled

AT_ONCE = RetryPolicy(attempts_max=2, base=0.0, factor=1.0, cap=0.0)


@pytest.mark.covers("X39", "C25")
@pytest.mark.parametrize("is_async", [True, False])
async def test_one_bad_message_condemns_no_other_of_its_batch(lab: Lab, is_async: bool) -> None:
    app, calls = lab.app(), []

    def insert(bodies: list[dict]) -> None:
        calls.append([body["n"] for body in bodies])
        if any(body["n"] == 13 for body in bodies):
            raise RuntimeError("13 breaks the whole insert")

    if is_async:

        @app.handler("a", batch=20, retry=AT_ONCE)
        async def many(bodies: list[dict]) -> None:
            await asyncio.sleep(0)
            insert(bodies)
    else:
        app.handler("a", batch=20, retry=AT_ONCE, name="many")(insert)

    app.publish_many(app.message("a", {"n": n}, subject=str(n)) for n in range(60))
    async with lab.working(app):
        await settled(lab)
    (dead,) = lab.rows("dead")
    assert (dead.subject, dead.reason, dead.last_reason, dead.attempts, dead.failures) == ("13", 7, 2, 2, 2)
    assert sorted(int(row.subject) for row in lab.rows("history")) == [n for n in range(60) if n != 13]
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(1, 0)}, (
        "one start that counts each"
    )
    together = [call for call in calls if 13 in call]
    assert [len(call) for call in together[1:]] == [1, 1], "then alone, as often as it may start"
    for call in calls:
        beside = set(call) & set(together[0])
        assert call == together[0] or not beside or len(call) == 1, "all of that batch go alone"


@pytest.mark.covers("X39")
async def test_a_dependency_that_fails_a_batch_counts_and_then_each_is_on_its_own(lab: Lab) -> None:
    """No splitting while the dependency is down; but an answer of 500 to one message condemns no other."""
    app, calls = lab.app(), []

    @app.handler("a", batch=10, retry=AT_ONCE)
    async def many(bodies: list[dict]) -> None:
        calls.append(len(bodies))
        if any(body["n"] == 3 for body in bodies):
            raise ConnectionError("reset by peer")

    app.publish_many(app.message("a", {"n": n}, subject=str(n)) for n in range(10))
    async with lab.working(app):
        await settled(lab)
    assert calls == [10] + [1] * 10
    assert [(row.subject, row.attempts) for row in lab.rows("dead")] == [("3", 2)]
    assert {(row.attempts, row.failures) for row in lab.rows("history")} == {(2, 1)}


@pytest.mark.covers("X39", "W45")
async def test_streams_keep_their_order_around_a_batch_that_failed(lab: Lab) -> None:
    app, seen = lab.app(), []

    @app.handler("a", batch=4, retry=AT_ONCE)
    def many(bodies: list[dict]) -> None:
        if any(body["bad"] for body in bodies):
            raise RuntimeError("one of them")
        seen.extend((body["stream"], body["n"]) for body in bodies)

    app.publish_many(
        app.message("a", {"stream": s, "n": n, "bad": (s, n) == ("b", 2)}, stream=s)
        for n in range(5)
        for s in "abcd"
    )
    async with lab.working(app):
        await settled(lab)
    for stream in "abcd":
        expected = [n for n in range(5) if (stream, n) != ("b", 2)]
        assert [n for s, n in seen if s == stream] == expected
    assert len(lab.rows("dead")) == 1


async def test_with_a_single_start_allowed_a_batch_that_raises_is_the_end_of_all(lab: Lab) -> None:
    """A second start is what the policy forbids: nothing is lost, all are dead letters with the error."""
    app, calls = lab.app(), []
    once = RetryPolicy(attempts_max=1)

    @app.handler("a", batch=10, retry=once)
    def many(bodies: list[dict]) -> None:
        calls.append(len(bodies))
        raise RuntimeError("all of it")

    app.publish_many(app.message("a", {"n": n}) for n in range(3))
    async with lab.working(app):
        await settled(lab)
    assert calls == [3]
    assert [(row.reason, row.last_reason) for row in lab.rows("dead")] == [(7, 2)] * 3


async def test_a_validation_error_of_one_kills_only_that_one(lab: Lab) -> None:
    app = lab.app()

    class ValidationError(Exception):
        pass

    @app.handler("a", batch=10)
    async def many(bodies: list[dict]) -> Any:
        if any(body["n"] == 5 for body in bodies):
            raise ValidationError

    app.publish_many(app.message("a", {"n": n}, subject=str(n)) for n in range(10))
    async with lab.working(app):
        await settled(lab)
    assert [(row.subject, row.reason, row.attempts) for row in lab.rows("dead")] == [("5", 3, 1)]
    assert len(lab.rows("history")) == 9
