"""The limit of a journal, with its warning; and the self-check of instances in memory. On both databases."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Flow
from tests.orchestrations.shop import Shop, opened
from tests.store.state import check_invariants


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with opened(url, journal_events=20) as shop:
        yield shop


def counting(shop: Shop) -> Any:
    @shop.app.orchestration()
    async def count(n: int, flow: Flow) -> int:
        total = 0
        for _ in range(n):
            total += await flow.signal("add", int)
        return total

    return count


def test_a_long_journal_is_told_and_a_full_one_pauses(
    shop: Shop, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    count = counting(shop)
    shop.of.start(count, 40, id="c")
    shop.of.start(count, 2, id="short")
    with caplog.at_level(logging.WARNING, "holdfast.orchestrations"):
        for n in range(1, 41):
            shop.of.signal("c", "add", 1)
            shop.drain()
            told = [
                each for each in caplog.records if "at five times as many it is paused" in each.getMessage()
            ]
            # Its start is an event, too: the fourth of 20 is a fifth.
            assert len(told) == (1 if n >= 3 else 0)
    status = shop.of.status("c")
    assert (status.state, status.entries) == ("paused", 20)
    assert "its journal is at the limit, with 20 events" in str(status.trouble)
    assert "Paused: its journal is at the limit" in " ".join(shop.app.operations.why("c"))
    found = {each.name: each.text for each in shop.app.operations.status().problems}
    assert "1 instance of count@1 is paused" in found["paused-instances"]
    assert "1 instance has a journal of more than a fifth" in found["long-journals"]
    for _ in range(2):
        shop.of.signal("short", "add", 1)  # others are not held up
    shop.drain()
    assert shop.of.result("short") == 2

    wider = Shop(url, {"journal_events": 100})
    counting(wider)
    wider.app.operations.orchestrations.resume("c")
    wider.drain()
    assert wider.of.result("c") == 40  # nothing was lost
    wider.forget()
    wider.app.close()


def test_a_journal_with_too_many_bytes_pauses(url: str) -> None:
    shop = Shop(url, {"journal_bytes": 4000})
    count = counting(shop)
    shop.of.start(count, 1000, id="c")
    for _ in range(40):
        shop.of.signal("c", "add", 10**15)
        shop.drain()
    assert shop.of.status("c").state == "paused"
    assert shop.app.operations.orchestrations.terminate("c", "too long").state == "terminated"
    shop.drain()
    assert shop.query("select count(*) from {pending}") == [(0,)]
    shop.forget()
    check_invariants(shop.app.store)
    shop.app.close()


def test_the_self_check_notices_code_that_does_not_do_the_same(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    double, seen = shop.double, {"turns": 0}

    @shop.app.orchestration()
    async def drifts(flow: Flow) -> int:
        seen["turns"] += 1  # differs from run to run
        for _ in range(4):
            await flow.signal("go")
            if seen["turns"] > 1:
                await double(0)
        return 1

    @shop.app.orchestration()
    async def steady(flow: Flow) -> int:
        for _ in range(4):
            await flow.signal("go")
        return 1

    sampling = shop.of.place.memory.sampling
    sampling.every = 0
    for each in (drifts, steady):
        shop.of.start(each, id=each.name)
    shop.drain()
    sampling.every = 1
    with caplog.at_level(logging.ERROR, "holdfast.orchestrations"):
        for _ in range(2):
            for id in ("drifts", "steady"):
                shop.of.signal(id, "go")
            shop.drain()
    assert sampling.differed == 1
    assert sampling.checked >= 3
    (told,) = [
        each for each in caplog.records if "does not do the same when it is replayed" in each.getMessage()
    ]
    assert "drifts" in told.getMessage()
    assert shop.of.status("drifts").state == "paused"  # by its next turn, with the difference
    assert "+ activity double" in str(shop.of.status("drifts").trouble)
    assert shop.of.status("steady").state == "running"


def test_one_turn_in_a_hundred_is_checked(shop: Shop) -> None:
    sampling = shop.of.place.memory.sampling
    assert sum(sampling.is_due() for _ in range(1000)) == 10


def test_a_cancellation_for_another_child_does_not_come_in_with_a_run(shop: Shop) -> None:
    """It stands between signals of a stranger with the same id, in one run."""
    count = counting(shop)

    @shop.app.orchestration()
    async def parent() -> None:
        await count.using(id="taken")(1)

    shop.of.start(count, 2, id="taken")
    shop.drain()
    shop.of.start(parent, id="p")
    shop.drain("parent@1")
    shop.of.signal("taken", "add", 1)
    shop.of.cancel("p")
    shop.drain("parent@1")
    shop.of.signal("taken", "add", 1)
    shop.drain()
    assert shop.of.result("taken") == 2
    assert shop.of.status("p").state == "cancelled"


def test_a_start_with_a_taken_id_is_answered_in_the_middle_of_a_run(shop: Shop) -> None:
    count = counting(shop)

    @shop.app.orchestration()
    async def parent() -> str:
        try:
            await count.using(id="taken")(1)
        except Exception as error:
            return str(error)
        return "no error"

    shop.of.start(count, 2, id="taken")
    shop.drain()
    shop.of.signal("taken", "add", 1)
    shop.of.start(parent, id="p")
    shop.drain("parent@1")
    shop.of.signal("taken", "add", 1)
    shop.drain()
    assert shop.of.result("taken") == 2
    assert "exists already" in shop.of.result("p")
