"""How long instances are kept, and under which key, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Flow
from holdfast.bodies.keys import new_key
from holdfast.store.plans import queues
from tests.orchestrations.shop import Shop, opened

DAY = 86_400.0


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with opened(url, instances=2 * DAY) as shop:
        yield shop


def waits(shop: Shop) -> Any:
    double = shop.double

    @shop.app.orchestration()
    async def work(n: int, flow: Flow) -> int:
        flow.status = f"status-{n}"
        return await double(n) + await flow.signal("more", int)

    return work


def test_what_has_ended_is_kept_for_a_while_with_its_journal(shop: Shop) -> None:
    work = waits(shop)
    for id in ("old", "young", "open"):
        shop.of.start(work, 1, id=id)
    shop.drain()
    shop.of.signal("old", "more", 1)
    shop.drain()
    shop.clock.advance(days=1)
    shop.of.signal("young", "more", 1)
    shop.drain()
    shop.clock.advance(days=1)
    assert shop.app.operations.housekeeping().instances == 0
    shop.clock.advance(seconds=1)
    done = shop.app.operations.housekeeping()
    assert (done.instances, done.more) == (1, False)
    assert {id for (id,) in shop.query("select id from {instance}")} == {"young", "open"}
    assert {id for (id,) in shop.query("select id from {journal}")} == {"young", "open"}
    shop.clock.advance(days=365)
    assert shop.app.operations.housekeeping().instances == 1
    shop.of.signal("open", "more", 5)  # what has not ended is never removed
    shop.drain()
    assert shop.of.result("open") == 7
    shop.of.start(work, 1, id="old")  # its id is free again


def test_a_batch_is_bounded_by_the_rows_of_the_journals(shop: Shop) -> None:
    work = waits(shop)
    for n in range(5):
        shop.of.start(work, 1, id=f"w{n}")
        shop.of.signal(f"w{n}", "more", 1)
    shop.drain()
    shop.clock.advance(days=3)
    ((turns,),) = shop.query("select turn from {instance} where id = 'w0'")
    counts = []
    while (batch := shop.app.store.run(queues.prune("instances", 2 * DAY, 2 * (turns + 1)))).more:
        counts.append(batch.count)
    assert counts == [2, 2, 1]
    assert shop.app.store.run(queues.prune("instances", 2 * DAY, 1)).count == 0
    assert shop.query("select count(*) from {journal}") == [(0,)]


def test_what_runs_for_ever_keeps_the_execution_before(shop: Shop) -> None:
    @shop.app.orchestration()
    async def ticks(n: int, flow: Flow) -> None:
        await flow.signal("tick")
        flow.again(n + 1)

    shop.of.start(ticks, 0, id="t")
    for _ in range(5):
        shop.of.signal("t", "tick")
        shop.drain()
    assert shop.of.status("t").execution == 5
    assert shop.query("select distinct execution from {journal} order by execution") == [(4,), (5,)]


def bodies(shop: Shop) -> str:
    found = shop.query("select body from {journal}") + shop.query("select body from {pending}")
    found += shop.query("select coalesce(result, '') || coalesce(status, '') from {instance}")
    return "".join(text for (text,) in found)


@pytest.mark.covers("X38")
def test_a_rotation_seals_journals_results_and_status_again(url: str) -> None:
    old, new = new_key("old"), new_key("new")
    shop = Shop(url, {"keys": [old]})
    work = waits(shop)
    for id in ("ended", "open"):
        shop.of.start(work, 4711, id=id)
    shop.drain()
    shop.of.signal("ended", "more", 1)
    shop.drain()
    assert '"key":"old"' in bodies(shop)
    shop.forget()

    both = Shop(url, {"keys": [new, old]})
    waits(both)
    done = both.app.operations.keys.rotate()
    assert (done.unopened, done.left) == (0, 0)
    assert done.changed >= 6
    assert '"key":"old"' not in bodies(both)
    kinds = {each.kind for each in both.app.operations.keys.counts() if each.key == "new"}
    assert kinds >= {"journals", "outcomes", "status"}

    only = Shop(url, {"keys": [new]})
    waits(only)
    assert only.of.result("ended") == 9423
    only.of.signal("open", "more", 2)
    only.drain()
    assert only.of.result("open") == 9424
    assert "4711" not in bodies(only)
    for each in (shop, both, only):
        each.forget()
        each.app.close()


@pytest.mark.covers("X38")
def test_a_key_that_is_missing_is_waited_for(url: str) -> None:
    """It is not poison: nothing is counted, and the instance goes on when the key is there."""
    old, new = new_key("old"), new_key("new")
    shop = Shop(url, {"keys": [old]})
    work = waits(shop)
    shop.of.start(work, 1, id="w")
    shop.drain()
    shop.forget()
    stranger = Shop(url, {"keys": [new]})
    waits(stranger)
    stranger.of.signal("w", "more", 1)
    for _ in range(8):
        stranger.drain()
        stranger.clock.advance(hours=1)
    assert stranger.query("select count(*) from {dead}") == [(0,)]
    assert stranger.of.place.store().read(_state("w")) == "running"
    both = Shop(url, {"keys": [old, new]})
    both.clock.advance(days=2)
    waits(both)
    both.drain()
    assert both.of.result("w") == 3
    for each in (shop, stranger, both):
        each.forget()
        each.app.close()


def _state(id: str) -> Any:
    from holdfast.store.plans import instances

    def plan() -> Any:
        shown = yield from instances.show(id)
        return shown.state

    return plan()
