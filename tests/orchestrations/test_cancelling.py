"""Cancellation that reaches children and activities, on both databases; what becomes of calls nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Flow, NotFound, OrchestrationFailed, UsageError
from holdfast.orchestrations.journal import message_id
from tests.orchestrations.shop import Shop
from tests.store.state import check_invariants


def family(shop: Shop) -> tuple[Any, Any]:
    double = shop.double

    @shop.app.orchestration()
    async def child(n: int, flow: Flow) -> int:
        try:
            return await double(await flow.signal("n", int))
        except asyncio.CancelledError:
            flow.status = "undone"
            raise

    @shop.app.orchestration()
    async def parent(n: int) -> int:
        return sum(await asyncio.gather(*(child.using(id=f"c{i}")(i) for i in range(n))))

    return parent, child


@pytest.mark.covers("X58")
def test_cancel_reaches_children_and_ends_their_pending_calls(shop: Shop) -> None:
    parent, _ = family(shop)
    shop.of.start(parent, 3, id="p")
    shop.drain()
    shop.of.signal("c1", "n", 7)
    shop.drain("child@1")  # c1 waits for double now, c0 and c2 for their signal
    assert shop.query("select count(*) from {message} where queue = 'double'") == [(1,)]
    shop.of.cancel("p", "no more")
    shop.drain("parent@1", "child@1")
    assert {each: shop.of.status(each).state for each in ("p", "c0", "c1", "c2")} == {
        "p": "cancelled", "c0": "cancelled", "c1": "cancelled", "c2": "cancelled",
    }  # fmt: skip
    assert shop.of.status("c1").status == "undone"
    assert shop.query("select queue from {message}") == [("holdfast/signals",)], (
        "for children that are paused"
    )
    assert shop.query("select queue, outcome, why from {history} where outcome = 'cancelled'") == [
        ("double", "cancelled", "withdrawn by its orchestration")
    ]
    shop.drain()
    assert shop.did == []


def test_a_timeout_withdraws_the_call_and_cancels_the_child(shop: Shop) -> None:
    _, child = family(shop)
    double = shop.double

    @shop.app.orchestration()
    async def impatient() -> str:
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(double(1), child.using(id="slow")(1))
        except TimeoutError:
            return "too slow"
        return "in time"

    shop.of.start(impatient, id="i")
    shop.drain("impatient@1", "child@1")
    shop.clock.advance(seconds=61)
    shop.drain("impatient@1", "child@1")
    assert shop.of.result("i") == "too slow"
    assert shop.of.status("slow").state == "cancelled"
    assert shop.query("select queue from {message}") == [("holdfast/signals",)], "for a child that is paused"


def test_a_cancellation_for_a_child_does_not_reach_a_stranger_with_its_id(shop: Shop) -> None:
    _, child = family(shop)

    @shop.app.orchestration()
    async def parent_of_taken() -> None:
        async with asyncio.timeout(60):
            await child.using(id="taken")(1)

    shop.of.start(child, 1, id="taken")
    shop.drain()
    shop.of.start(parent_of_taken, id="p")
    shop.drain("parent_of_taken@1")  # the child's start is not refused yet
    shop.of.cancel("p")
    shop.drain()
    assert shop.of.status("p").state == "cancelled"
    assert shop.of.status("taken").state == "running"
    shop.of.signal("taken", "n", 4)
    shop.drain()
    assert shop.of.result("taken") == 8


def test_compensation_survives_cancellation_and_a_second_one(shop: Shop) -> None:
    double, done = shop.double, []

    @shop.app.activity()
    async def refund(n: int) -> None:
        done.append(n)

    @shop.app.orchestration()
    async def buy(flow: Flow) -> None:
        async with flow.saga() as undo:
            for n in (1, 2):
                await double(n)
                undo(refund, n)
            await flow.signal("never")

    shop.of.start(buy, id="b")
    shop.drain()
    shop.of.cancel("b", "first")
    shop.drain("buy@1")  # the first refund is asked for
    shop.of.cancel("b", "second")
    shop.drain()
    assert done == [2, 1]
    assert shop.of.status("b").state == "cancelled"
    with pytest.raises(OrchestrationFailed, match="cancelled"):
        shop.of.result("b")


def test_a_running_activity_is_told(url: str) -> None:
    """The worker that runs it sees the cancellation at its heartbeat, as for `holdfast messages cancel`."""
    shop = Shop(url, {"heartbeat": 0.2})
    began, ended = threading.Event(), threading.Event()

    @shop.app.activity()
    async def long() -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise
        return "whole"

    @shop.app.orchestration()
    async def waits() -> str:
        return await long()

    shop.of.start(waits, id="w")
    shop.app.prepare()

    async def run() -> None:
        worker = asyncio.create_task(shop.app.worker(until_idle=True).run())
        assert await asyncio.to_thread(began.wait, 20)
        await shop.of.acancel("w", "enough")
        assert await asyncio.to_thread(ended.wait, 20)
        await worker
        await shop.app.store.aclose()

    asyncio.run(run())
    assert shop.of.status("w").state == "cancelled"
    call = message_id("w", 0, 1)
    assert shop.query(f"select outcome from {{history}} where id = '{call}'") == [("cancelled",)]
    shop.forget()
    check_invariants(shop.app.store)
    shop.app.close()


def test_terminate_ends_an_instance_without_its_code(shop: Shop) -> None:
    _, child = family(shop)
    double = shop.double

    @shop.app.orchestration()
    async def stubborn(flow: Flow) -> int:
        while True:
            try:
                await asyncio.gather(double(1), child.using(id="kid")(1), asyncio.sleep(86_400))
            except asyncio.CancelledError:
                flow.status = "I stay"

    @shop.app.orchestration()
    async def above() -> int:
        return await stubborn.using(id="s")()

    shop.of.start(above, id="a")
    shop.drain("above@1", "stubborn@1", "child@1")
    assert shop.query("select count(*) from {pending}") == [(2,)]  # double and the timer
    by = shop.app.operations.by("anna").orchestrations
    with pytest.raises(UsageError, match="Say why"):
        by.terminate("s", " ")
    assert by.terminate("s", "it never ends").what == "terminated"
    assert shop.query("select count(*) from {pending} where queue in ('double', 'holdfast/timer')") == [(0,)]
    shop.drain()
    assert shop.did == []
    assert shop.of.status("s").state == "terminated"
    assert shop.of.status("s").status is None  # its code was not run
    assert shop.of.status("kid").state == "cancelled"
    with pytest.raises(
        OrchestrationFailed, match="Terminated: an operator ended the orchestration: it never ends"
    ):
        shop.of.result("a")
    for ended in ("s", "a"):
        with pytest.raises(UsageError, match="was not terminated: it is"):
            by.terminate(ended, "again")
    with pytest.raises(NotFound):
        by.terminate("nobody", "why not")
    (line,) = shop.app.operations.audit(action="orchestrations.terminate")
    assert (line.target, line.who, line.why) == ("s", "anna", "it never ends")
    assert shop.query("select count(*) from {pending}") == [(0,)]


def test_a_turn_that_runs_while_its_instance_is_terminated_stores_nothing(shop: Shop) -> None:
    double = shop.double

    @shop.app.orchestration()
    async def two(flow: Flow) -> int:
        flow.once(terminate)  # while this turn runs
        return await double(1)

    def terminate() -> None:
        shop.app.operations.orchestrations.terminate("t", "now")

    shop.of.start(two, id="t")
    shop.drain()
    shop.advance(seconds=60)  # the message of the refused turn comes again, and is late
    assert shop.of.status("t").state == "terminated"
    assert shop.query("select count(*) from {journal}") == [(0,)]
    assert shop.query("select count(*) from {pending}") == [(0,)]
    assert shop.did == []


@pytest.mark.parametrize("how", ["the turn", "an operator"])
def test_a_withdrawn_call_that_was_locked_is_told_a_moment_later(shop: Shop, how: str) -> None:
    """Somebody hands it out or settles it while the turn is stored, which must not wait. SQLite has no such locks."""
    shop.of.start(waits_for(shop), id="c")
    shop.drain("calls@1")
    lock = "" if shop.url.startswith("sqlite") else " for update"
    with shop.connection() as other:
        found = other.execute(f"select id from {shop.prefix}message where queue = 'double'{lock}").fetchall()
        if how == "the turn":
            shop.of.cancel("c")
            shop.drain("calls@1")
        else:
            shop.app.operations.orchestrations.terminate("c", "why")
        locked = 1 if lock else 0
        assert shop.query("select count(*) from {message} where queue = 'double'") == [(locked,)]
        shop.clock.advance(seconds=2)
        shop.drain("holdfast/signals")
        assert shop.query("select count(*) from {pending}") == [(2 * locked,)], "it is looked at again"
        other.rollback()
    shop.clock.advance(seconds=2)
    shop.drain("holdfast/signals")
    assert shop.query("select count(*) from {pending}") == [(0,)]
    ((id,),) = found
    assert shop.query(f"select outcome from {{history}} where id = '{id}'") == [("cancelled",)]
    assert shop.did == []


def test_who_runs_a_withdrawn_call_that_was_locked_is_asked_to_stop(shop: Shop) -> None:
    """It was handed out while the turn was stored."""
    if shop.url.startswith("sqlite"):
        return  # the writer is alone
    shop.of.start(waits_for(shop), id="c")
    shop.drain("calls@1")
    ((seq,),) = shop.query("select seq from {message} where queue = 'double'")
    with shop.connection() as other:
        other.execute(f"select 1 from holdfast.message where seq = {seq} for update")
        other.execute(
            f"insert into holdfast.lease (seq, until, worker, epoch) values ({seq}, 'infinity', 1, 1)"
        )
        shop.of.cancel("c")
        shop.drain("calls@1")
        other.commit()
    assert shop.query("select cancel from {lease}") == [(False,)]
    shop.clock.advance(seconds=2)
    shop.drain("holdfast/signals")
    assert shop.query("select cancel from {lease}") == [(True,)]
    shop.execute("delete from holdfast.lease")
    shop.drain()


def waits_for(shop: Shop) -> Any:
    @shop.app.orchestration()
    async def calls(flow: Flow) -> int:
        return await shop.double(1)

    return calls
