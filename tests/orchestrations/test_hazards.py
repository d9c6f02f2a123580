"""What has hurt users of other engines, tried on ours, on both databases. H2 is hazard 2 of the list, and so on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from holdfast import ActivityFailed, Flow, Holdfast, InstanceExists
from tests.orchestrations.shop import ONCE, Shop


def test_an_activity_that_was_answered_and_is_redriven_changes_nothing(shop: Shop) -> None:
    """H2: its dead letter answered the call; the answer of the redriven one is late."""
    broken = True

    @shop.app.activity(retry=ONCE)
    async def fragile() -> int:
        if broken:
            raise ValueError("broken")
        return 7

    @shop.app.orchestration()
    async def calls(flow: Flow) -> list[Any]:
        try:
            first: Any = await fragile()
        except ActivityFailed:
            first = "failed"
        return [first, await flow.signal("go", int)]

    shop.of.start(calls, id="c")
    shop.drain()
    broken = False
    (letter,) = shop.app.operations.dead.list()
    shop.app.operations.dead.redrive(letter.id)
    shop.drain()
    assert shop.of.status("c").state == "running"
    shop.of.signal("c", "go", 1)
    shop.drain()
    assert shop.of.result("c") == ["failed", 1]


def test_a_child_answers_the_execution_that_asked_for_it(shop: Shop) -> None:
    """H7: parents and children that continue as new, three times each."""

    @shop.app.orchestration()
    async def child(n: int, flow: Flow) -> int:
        if n % 10 < 3:
            flow.again(n + 1)
        return n

    @shop.app.orchestration()
    async def parent(total: int, flow: Flow) -> int:
        got = total + await child(round_of(total) * 10)
        if round_of(got) < 3:
            flow.again(got)
        return got

    def round_of(total: int) -> int:
        return total % 10 // 3

    shop.of.place.memory.forgets = True
    shop.of.start(parent, 0, id="p")
    shop.drain()
    assert shop.of.result("p") == 3 + 13 + 23
    assert shop.of.status("p").execution == 2
    ids = {id for (id,) in shop.query("select id from {instance}")}
    assert ids == {"p", "p/0.1", "p/1.1", "p/2.1"}


def test_versions_are_kept_over_a_restart_between_turns(url: str) -> None:
    """H18: the turn that only takes an answer is one of the version that asked."""

    def release(*versions: str) -> Shop:
        made = Shop(url)
        for version in versions:
            declare(made, version)
        return made

    def declare(made: Shop, version: str) -> None:
        @made.app.orchestration(version=version, name="flow")
        async def flow_of(flow: Flow) -> str:
            return f"{version} {await made.double(int(version))}"

    old = release("1")
    old.of.start(old.of.declared["flow@1"], id="one")
    old.drain("flow@1")
    old.forget()
    old.app.close()
    both = release("1", "2")
    both.of.start(both.of.declared["flow@2"], id="two")
    both.drain("flow@2")
    both.forget()
    both.drain()
    assert (both.of.result("one"), both.of.result("two")) == ("1 2", "2 4")
    both.forget()
    both.app.close()


def test_parents_and_children_need_no_slots_of_their_own(url: str) -> None:
    """H22: 32 levels deep, one worker, one call at once."""
    app = Holdfast(url, concurrency=1)

    @app.orchestration(concurrency=1)
    async def deep(left: int, flow: Flow) -> int:
        return 0 if left == 0 else 1 + int(await deep(left - 1))

    app.orchestrations.start(deep, 32, id="d")

    async def run() -> None:
        await app.worker(until_idle=True).run()
        app.orchestrations.place.memory.forget()
        await app.store.aclose()

    asyncio.run(run())
    assert app.orchestrations.result("d") == 32
    app.close()


def test_of_concurrent_starts_with_one_id_one_wins(shop: Shop) -> None:
    """H27"""

    @shop.app.orchestration()
    async def adds(n: int) -> int:
        return int(await shop.double(n))

    shop.app.prepare()
    won: list[int] = []
    taken: list[int] = []
    gate = threading.Barrier(4)

    def start(n: int) -> None:
        gate.wait()
        for round in range(5):
            try:
                shop.of.start(adds, n, id=f"r{round}")
                won.append(n)
            except InstanceExists:
                taken.append(n)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(won), len(taken)) == (5, 15)
    shop.drain()
    assert len(shop.did) == 5
    assert shop.query("select count(*) from {instance} where state = 'completed'") == [(5,)]


def test_an_answer_that_comes_with_another_decides_no_branch(shop: Shop) -> None:
    """H8 and H14 on the engine: answers of both in one run, and in two, take the same branch."""

    @shop.app.orchestration()
    async def races(flow: Flow) -> str:
        won = await flow.first(a=shop.double(1), b=shop.double(2))
        return f"{won.name} {await shop.double(3)}"

    for id in ("together", "apart"):
        shop.of.start(races, id=id)
        shop.drain("races@1")
    shop.drain("double")  # both answers of each wait in its stream
    shop.drain()
    assert shop.of.result("together").split() == ["a", "6"]
    assert shop.of.result("apart").split() == ["a", "6"]
    for id in ("together", "apart"):
        rows = shop.app.operations.orchestrations.journal(id)
        assert sum(len(row.entries) for row in rows) == 3, "the loser left no entry"


def test_who_waits_for_a_result_is_woken_by_its_end(shop: Shop) -> None:
    """H29: results are asked for while the instances end."""

    @shop.app.orchestration()
    async def ends(n: int) -> int:
        return n

    for n in range(50):
        shop.of.start(ends, n, id=f"e{n}")
    got: list[int] = []
    waits = threading.Thread(
        target=lambda: got.extend(shop.of.result(f"e{n}", timeout=1e6) for n in range(50))
    )
    waits.start()
    shop.drain()
    waits.join(30)
    assert got == list(range(50))
