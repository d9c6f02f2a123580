"""Housekeeping keeps up: it goes on within its share of the time, one process for all, and its lag is shown."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.operations import cleaning
from holdfast.operations.cleaning import Cleaning
from holdfast.operations.gauges import survey
from holdfast.operations.keeper import STRETCHES, Keeper
from holdfast.rules.housekeeping import Rest
from holdfast.store.plans import operator, queues
from holdfast.store.plans.operator_postgres import PostgresOperator
from holdfast.store.text import load
from tests.operations.world import NOON, World

INSERT = (
    "insert into holdfast.history (ended_at, due_at, id, status, attempts, failures, outcome, queue, type)"
)


def lines(world: World, count: int, *, days: float) -> None:
    """So many lines of history that ended so long ago."""
    if world.store.engine.dialect == "sqlite":
        numbers = f"with recursive n (n) as (select 1 union all select n + 1 from n where n < {count})"
        text = (
            f"{INSERT} {numbers} select :now - cast(:days * 86400000000 as integer) + n, 1, hex(randomblob(16)), 5, "
            "1, 0, 'done', 'q', 't' from n"
        )
    else:
        text = (
            f"{INSERT} select :now::timestamptz - :days::float8 * interval '1 day' + n * interval '1 us', now(), "
            f"gen_random_uuid(), 5, 1, 0, 'done', 'q', 't' from generate_series(1, {count}) n"
        )
    world.sql(text, now=world.store.now(), days=days)


def left(world: World) -> int:
    ((count,),) = world.sql("select count(*) from holdfast.history")
    return int(count)


def keys(world: World, count: int) -> None:
    """Dedupe keys whose messages have ended."""
    for n in range(count):
        world.publish(queue="q", dedupe=f"k{n}")
    for leased in world.claim(total=count):
        world.done(leased)


class Ticking:
    """A clock by which each look takes a second."""

    def __init__(self, world: World) -> None:
        self.world = world

    def monotonic(self) -> float:
        self.world.clock.advance(seconds=1)
        return self.world.clock.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.clock, name)


def test_a_round_goes_on_until_all_is_gone(world: World) -> None:
    """It used to stop behind a fixed number of batches, whatever time there was."""
    lines(world, 120_000, days=8)
    lines(world, 5, days=6)
    done = world.operations.housekeeping()
    assert (done.history, done.more, left(world)) == (120_000, False, 5)


def test_a_stretch_ends_when_its_time_is_over_and_the_next_goes_on_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "BATCH", 16)  # a page on PostgreSQL
    lines(world, 2000, days=8)
    lines(world, 10, days=1)
    world.store.clock = Ticking(world)  # type: ignore[assignment]
    ours, desk = Cleaning(), world.operations._desk
    counts, rest = ours.run(desk, 3.0)
    assert 0 < counts["history"] < 2000
    assert rest == Rest(3.0 * 9, more=True)
    total = counts["history"]
    for _ in range(200):
        counts, rest = ours.run(desk, 3.0)
        total += counts["history"]
        if not rest.more:
            break
    assert (total, left(world), ours.marks) == (2000, 10, {})


def test_no_kind_waits_until_another_one_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "BATCH", 16)
    keys(world, 3)
    world.clock.advance(days=8)
    lines(world, 5000, days=8)
    counts, rest = Cleaning().run(world.operations._desk, 0.0)
    assert counts["history"] < 5000
    assert (counts["dedupe"], rest.more) == (3, True)


def test_what_goes_wrong_with_one_kind_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys(world, 3)
    world.clock.advance(days=8)
    prune = queues.prune

    def broken(what: str, *more: Any) -> Any:
        if what == "history":
            raise RuntimeError("the history is broken")
        return prune(what, *more)

    monkeypatch.setattr(queues, "prune", broken)
    with pytest.raises(RuntimeError, match="the history is broken"):
        world.operations.housekeeping()
    assert world.sql("select count(*) from holdfast.dedupe") == [(0,)]


@pytest.mark.parametrize("what", ["dedupe", "streams"])
def test_batches_go_on_behind_what_must_stay(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What is kept, because somebody needs it, is not looked at again for each batch."""
    monkeypatch.setattr(cleaning, "BATCH", 2)
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    for n in range(7):
        world.publish(dedupe=f"k{n}", stream=f"s{n}")
    for queue in ("a", "b"):
        for leased in world.claim(queue, name=queue):
            if leased.message.stream != "s3" or queue == "a":  # one delivery of the fourth is left
                world.done(leased)
    world.clock.advance(days=8)
    counts, rest = Cleaning().run(world.operations._desk, 60.0)
    assert counts[what] == {"dedupe": 6, "streams": 13}[what]
    assert not rest.more
    world.healthy()


def test_one_process_cleans_for_all(world: World) -> None:
    desk, first, second = world.operations._desk, Cleaning(), Cleaning()
    lines(world, 10, days=8)
    first.in_turn(desk)
    lines(world, 10, days=8)
    assert (second.in_turn(desk), left(world)) == (Rest(0.0, more=False), 10)
    world.clock.advance(seconds=60)
    second.in_turn(desk)
    assert left(world) == 0


def test_a_turn_of_one_who_died_does_not_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = world.operations._desk
    with monkeypatch.context() as patch:
        patch.setattr(Cleaning, "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Cleaning().in_turn(desk)
    lines(world, 10, days=8)
    world.clock.advance(seconds=cleaning.TURN_SECONDS)
    Cleaning().in_turn(desk)
    assert left(world) == 0


def test_a_keeper_that_has_more_to_clean_only_cleans(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few seconds; the other chores keep their minute."""
    chores, answers = [], [Rest(4.5, more=True)] * (STRETCHES + 1) + [Rest(0.0, more=False)] * 2
    monkeypatch.setattr(type(world.operations), "chores", lambda _: chores.append(len(answers)))
    monkeypatch.setattr(type(world.operations), "clean", lambda *_: answers.pop(0))
    keeper = Keeper(lambda: world.operations)
    while answers:
        keeper()
    assert chores == [STRETCHES + 2, 2, 0]


async def test_a_worker_goes_on_while_there_is_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast import Holdfast

    monkeypatch.setattr("holdfast.worker.loop.HOUSEKEEPING", 0.01)
    app = Holdfast(url)
    calls, over = [], threading.Event()

    def keep() -> Rest:
        calls.append(1)
        if len(calls) > 3:
            over.set()
        return Rest(0.001, more=len(calls) < 4)

    monkeypatch.setattr("holdfast.facade.working.Keeper", lambda *_: keep)

    @app.handler("t")
    async def work(body: object) -> None: ...

    import asyncio

    app.migrate()
    async with app.running():
        assert await asyncio.to_thread(over.wait, 30)
    app.close()


# --- Its lag ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [7.0, 7.5, 9.0])
def test_the_lag_is_measured(world: World, days: float) -> None:
    lines(world, 3, days=6.9)
    assert world.operations.overdue() == {"history": 0.0, "dedupe": 0.0}
    lines(world, 3, days=days)
    lag = world.operations.overdue()["history"]
    assert lag == pytest.approx((days - 7) * 86_400, abs=0.01)
    found = [each for each in world.operations.doctor() if each.name == "housekeeping-behind"]
    assert [each.severity for each in found] == (["warning"] if days > 7 else [])
    if days == 7.5:
        assert "12.0 h behind: the oldest rows of the history" in found[0].text
    samples = {each.labels: each.values for each in survey(world.operations)
               if each.name == "holdfast_housekeeping_lag_seconds"}  # fmt: skip
    assert samples == {("history",): (lag,), ("dedupe",): (0.0,)}
    world.operations.housekeeping()
    assert world.operations.overdue()["history"] == 0.0


def test_the_lag_of_dedupe_keys_counts_those_that_may_go(world: World) -> None:
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    world.publish(dedupe="k")
    world.done(world.claim("a", name="a")[0])
    world.clock.advance(days=8)
    assert world.operations.overdue()["dedupe"] == 0.0  # one delivery is left
    world.done(world.claim("b", name="b")[0])
    world.sql("update holdfast.dedupe set ended_at = :at", at=past(world, 8))
    assert world.operations.overdue()["dedupe"] == pytest.approx(86_400)
    assert any("dedupe keys" in each.text for each in world.operations.doctor())


def past(world: World, days: int) -> Any:
    from datetime import timedelta

    now = world.store.now()
    return now - (days * 86_400_000_000 if isinstance(now, int) else timedelta(days=days))  # type: ignore[operator]


# --- PostgreSQL: what was deleted is not read again -------------------------------------------------------------------


def test_pages_are_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted lines stay until they are vacuumed: batches that begin at the front read them all again."""
    if world.store.engine.dialect == "sqlite":
        return
    monkeypatch.setattr(cleaning, "BATCH", 16)
    world.sql("alter table holdfast.history set (autovacuum_enabled = off)")
    world.sql("truncate holdfast.history")  # another test may have left pages with nothing but deleted lines
    lines(world, 20_000, days=8)
    world.sql("analyze holdfast.history")
    ((pages,),) = world.sql("select pg_relation_size('holdfast.history') / 8192")
    batches: list[bool] = []
    plan = PostgresOperator.prune_history

    def counted(self: Any, before: Any, limit: int, page: int | None) -> Any:
        batches.append(page is None)
        return (yield from plan(self, before, limit, page))

    monkeypatch.setattr(PostgresOperator, "prune_history", counted)
    counts, _ = Cleaning().run(world.operations._desk, 60.0)
    assert counts["history"] == 20_000
    # A batch for each page and one behind the last. The index is asked for the first page, and in the end once more.
    assert (len(batches), sum(batches)) == (pages + 2, 2)
    from holdfast.store.statement import Statement

    def explained() -> Any:
        yield operator.sql("op_by_index")
        found = []
        for name, params in (
            ("op_prune_history", {"page": 5, "pages": 4, "before": NOON}),
            ("op_prune_history_from", {"before": NOON}),
        ):
            text = load("postgres", (f"operator/{name}",))
            rows = yield Statement(f"explain {text}", params)
            found.append(" ".join(row for (row,) in rows))
        return found

    delete, look = world.store.run(explained())
    assert "Tid Range Scan" in delete
    assert "history_ended" in look
