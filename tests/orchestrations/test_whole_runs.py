"""A turn takes all that waits for its instance, its settlement is one unit, and journals of many are read at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import Flow, OrchestrationFailed
from holdfast.model.work import Report, Want
from holdfast.orchestrations.leaving import Leaving
from holdfast.orchestrations.turns import RUN_MAX
from holdfast.rules.delivery import Returned
from holdfast.store.plans import engine, instances
from tests.orchestrations.shop import Shop


def collecting(shop: Shop, count: int, **options: Any) -> Any:
    @shop.app.orchestration(**options)
    async def collect(flow: Flow) -> list[int]:
        return [await flow.signal("word", int) for _ in range(count)]

    return collect


@pytest.mark.covers("D22", "X58", "X59")
def test_what_waits_is_one_turn_and_its_row_names_the_messages(shop: Shop) -> None:
    shop.of.start(collecting(shop, 40), id="c")
    for n in range(40):
        shop.of.signal("c", "word", n)
    sent = [str(id) for (id,) in shop.query("select id from {message} order by position")]
    shop.drain()
    assert shop.of.result("c") == list(range(40))
    ((turn, body),) = shop.query("select turn, body from {journal}")
    entries = json.loads(body)["entries"]
    assert turn == 1
    assert [arrival[1] for arrival, *_ in entries] == sent
    assert shop.query("select count(*), max(attempts) from {history}") == [(41, 1)]


def test_a_turn_that_is_refused_comes_back_whole_and_nothing_of_it_is_stored(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message comes again alone, none counts, and all of them reach the code once, in their order."""
    shop.of.start(collecting(shop, 4), id="c")
    for n in range(4):
        shop.of.signal("c", "word", n)
    plain, refused = Leaving.delta, []

    def wrong(self: Leaving, turn: Any, *others: Any) -> Any:
        made = plain(self, turn, *others)
        if not refused:
            refused.append(len(turn.row.entries))
            made.rows[0]["turn"] += 5  # type: ignore[index]
        return made

    monkeypatch.setattr(Leaving, "delta", wrong)
    shop.drain()
    assert refused == [5], "the whole run was one settlement"
    assert shop.of.result("c") == list(range(4))
    rows = shop.query("select turn, body from {journal} order by turn")
    assert [(turn, len(json.loads(body)["entries"])) for turn, body in rows] == [(n, 1) for n in range(1, 6)]
    assert shop.query("select count(*) from {dead}") == [(0,)]
    assert shop.query("select max(attempts), max(failures) from {history}") == [(1, 0)]


def test_continue_as_new_in_the_middle_of_a_run_loses_nothing(shop: Shop) -> None:
    """What is behind it goes to the next execution, however often that happens, and nothing of it counts."""

    @shop.app.orchestration()
    async def counts(seen: list[int], flow: Flow) -> list[int]:
        seen = [*seen, await flow.signal("word", int)]
        if len(seen) == 120:
            return seen
        return flow.again(seen)

    shop.of.start(counts, [], id="c")
    for n in range(120):
        shop.of.signal("c", "word", n)
    shop.drain()
    assert shop.of.result("c") == list(range(120))
    assert shop.of.status("c").execution == 119
    assert shop.query("select count(*) from {dead}") == [(0,)]


def test_a_message_in_a_run_that_cannot_be_read_takes_nobody_with_it(shop: Shop) -> None:
    shop.of.start(collecting(shop, 3), id="c")
    for n in range(4):
        shop.of.signal("c", "word", n)
    shop.execute(
        f"update {shop.prefix}message set body = '{{' where seq = (select max(seq) - 1 from {shop.prefix}message)"
    )
    shop.drain()
    assert shop.of.status("c").state == "failed"
    ((body,),) = shop.query("select body from {journal} where turn = 1")
    assert len(json.loads(body)["entries"]) == 3, "the start and the two before it are stored"


@pytest.mark.parametrize("allowed", [1, 2])
def test_where_one_start_is_all_a_turn_takes_one_message(shop: Shop, allowed: int) -> None:
    """Else a crash would use up the only start of the messages behind."""
    shop.of.start(collecting(shop, 3, max_attempts=allowed), id="c")
    for n in range(3):
        shop.of.signal("c", "word", n)
    shop.drain()
    assert shop.of.result("c") == [0, 1, 2]
    assert shop.of.status("c").turn == (4 if allowed == 1 else 1)


def test_journals_of_many_cold_instances_are_read_at_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = collecting(shop, 2)
    for n in range(30):
        shop.of.start(collect, id=f"c{n}")
    shop.drain()
    shop.forget()
    for n in range(30):
        for word in (1, 2):
            shop.of.signal(f"c{n}", "word", word)
    read: list[int] = []
    plain = instances.journals
    monkeypatch.setattr(instances, "journals", lambda ids: read.append(len(ids)) or plain(ids))
    shop.drain()
    assert {tuple(shop.of.result(f"c{n}")) for n in range(30)} == {(1, 2)}
    assert sum(read) == 30
    assert len(read) <= 5, read


def test_a_long_stream_is_taken_in_parts(shop: Shop) -> None:
    shop.of.start(collecting(shop, RUN_MAX + 200), id="c")
    for n in range(RUN_MAX + 200):
        shop.of.signal("c", "word", n)
    shop.drain()
    assert shop.of.result("c") == list(range(RUN_MAX + 200))
    assert 1 < shop.of.status("c").turn < 60


@pytest.mark.covers("X58")
def test_a_turn_that_was_not_stored_is_not_gone_on_with(shop: Shop) -> None:
    """A worker runs a turn and loses its lease; another one stores that turn, with another side effect."""
    other = Shop(shop.url, clock=shop.clock)

    def declare(number: int, each: Shop) -> Any:
        @each.app.orchestration()
        async def rolls(flow: Flow) -> int:
            rolled = flow.once(lambda: number, name="roll")
            await flow.signal("next", int)
            return rolled

        return rolls

    rolls = declare(1, shop)
    declare(2, other)
    shop.of.start(rolls, id="r")
    shop.app.prepare()
    asked = Report(4711, want=[Want("rolls@1", 1)], total=1)
    (leased,) = shop.app.store.run(engine.exchange(asked)).work

    class Ran:
        def __call__(self) -> float:
            return 0.0

        began = over = staticmethod(lambda run: None)

    async def lost() -> None:
        try:
            ((ending,),) = await shop.app.handlers["rolls@1"].call_runs("rolls@1", [[leased]], Ran())
            assert isinstance(ending, Returned)
        finally:
            await shop.app.store.aclose()

    asyncio.run(lost())  # what it says is never handed in
    assert len(shop.of.place.memory.cache) == 1
    shop.app.store.run(engine.recover(worker=4711))
    other.drain()
    assert shop.of.status("r").turn == 1
    shop.of.signal("r", "next", 0)
    shop.drain()
    assert shop.of.result("r") == 2, "what the journal has, not what was in memory"
    other.forget()
    other.app.close()


def test_a_start_for_an_id_that_is_taken_is_answered_also_in_the_middle_of_a_run(shop: Shop) -> None:
    """It stands behind a signal, in one run with it: the parent that asked for it is told all the same."""
    collect = collecting(shop, 2)

    @shop.app.orchestration()
    async def parent() -> str:
        try:
            await collect.using(id="c")()
        except OrchestrationFailed as error:
            return error.error.type
        return "started"

    shop.of.start(collect, id="c")
    shop.drain()
    shop.of.signal("c", "word", 1)
    shop.of.start(parent, id="p")
    shop.drain("parent@1")
    assert shop.query("select count(*) from {message} where stream = 'c'") == [(2,)]
    shop.drain()
    assert shop.of.result("p") == "IdTaken"
    assert shop.of.status("c").state == "running"


def test_a_journal_whose_end_is_gone_is_poison_and_no_loop(shop: Shop) -> None:
    shop.of.start(collecting(shop, 2), id="c")
    shop.drain()
    shop.forget()
    shop.execute(f"delete from {shop.prefix}journal")
    shop.of.signal("c", "word", 1)
    shop.drain()
    assert shop.of.status("c").state == "failed"
    assert "ends at turn 0" in (shop.of.status("c").trouble or "")
