"""After a switch-over, a restore or a failover: sequences that lag are noticed, raised, and never lowered."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.clock import MovableClock, SystemClock
from holdfast.model.work import Outcome, Settlement
from holdfast.operations import Operations
from holdfast.rules.numbers import LEAP, MAX, raised
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.plans import engine, sequences
from tests.operations.world import NOON, World, make


@pytest.mark.parametrize(
    ("last", "stored", "leap", "to"),
    [
        (5, 5, False, None),
        (6, 5, False, None),
        (4, 5, False, 5 + LEAP),
        (0, 0, False, None),
        (0, 1, False, 1 + LEAP),
        (6, 5, True, 6 + LEAP),
        (0, 0, True, LEAP),
        (5, MAX + 1, False, None),  # nobody's sequence has come so far
        (5, MAX, False, MAX),
    ],
)
def test_what_is_raised(last: int, stored: int, leap: bool, to: int | None) -> None:
    assert raised(last, stored, leap) == to


# --- Sequences that lag -----------------------------------------------------------------------------------------------

NAMES = {"messages": ("message", "seq"), "workers": ("worker", "id"), "orders": ("audit", "number"),
         "news": ("alert_news", "number")}  # fmt: skip


def lag(world: World, name: str) -> None:
    """As on a database that got the rows and not the sequences."""
    if world.store.engine.dialect == "sqlite":
        world.sql(f"delete from sqlite_sequence where name = 'holdfast_{NAMES[name][0]}'")
    elif name == "positions":
        world.sql("select setval('holdfast.position', 1, false)")
    else:
        table, column = NAMES[name]
        world.sql(
            f"select setval(pg_get_serial_sequence('holdfast.{table}', '{column}')::regclass, 1, false)"
        )


def fill(world: World) -> None:
    """Something with each kind of number."""
    for _ in range(3):
        world.in_stream(2)
    for name in ("w1", "w2", "w3"):
        world.worker(name)
    (id, *_) = world.in_stream(1, "other")
    for _ in range(3):
        world.operations.messages.park(id)
        world.operations.messages.retry(id)
    news = (
        "insert into holdfast.alert_news (name, subject, what, at, since, value, threshold, text, details, try_at) "
        "values ('late', 'q', 'raised', :at, :at, 1, 1, 'late', '{}', :at)"
    )
    for _ in range(3):
        world.sql(news, at=world.store.now())


def names(world: World) -> list[str]:
    found = world.operations.doctor()
    return [
        each.name for each in found if each.name in ("sequence-behind", "stream-order", "stranded-stream")
    ]


def all_names(world: World) -> list[str]:
    return [*NAMES] if world.store.engine.dialect == "sqlite" else [*NAMES, "positions"]


def look(world: World, *, quick: bool = False) -> dict[str, tuple[int, int]]:
    found = world.store.run(sequences.look(quick=quick))
    return {each.name: (each.last, each.stored) for each in found}


def test_nothing_is_to_be_repaired(world: World) -> None:
    for _ in range(2):  # empty, and filled
        assert names(world) == []
        before = look(world)
        done = world.operations.repair()
        assert (done.raised, done.streams, look(world)) == ((), (), before)
        assert world.operations.audit(action="repair") == []
        fill(world)


@pytest.mark.covers("X62")
def test_a_number_from_a_file_is_not_followed_to_the_end_of_all_numbers(world: World) -> None:
    """The sequence was raised behind it: on SQLite no message could be published any more."""
    fill(world)
    (leased, *_) = world.claim()
    world.die(leased)
    world.sql("update holdfast.dead set seq = :seq, position = :seq", seq=2**62 - 1)
    assert world.operations.repair().raised == ()
    world.in_stream(1)
    lag(world, "messages")
    assert [each.name for each in world.operations.repair().raised] == ["messages"]  # which it does not hide
    world.in_stream(1)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", [*NAMES, "positions"])
def test_one_that_is_behind_is_noticed_and_raised(world: World, name: str, quick: bool) -> None:
    if name not in all_names(world):
        return
    fill(world)
    lag(world, name)
    assert names(world) == ["sequence-behind"]
    _, stored = look(world)[name]
    assert stored > 2
    if quick:  # as a worker does when it starts
        done = world.store.run(sequences.mend(raised, quick=True)).raised
        (before,) = [before for _, before, _ in done]
    else:
        (each,) = world.operations.repair(why="switched over").raised
        assert (each.name, each.after) == (name, stored + LEAP)
        before = each.before
        (line,) = world.operations.audit(action="repair")
        assert (line.before, line.after, line.why) == ({name: before}, {name: stored + LEAP}, "switched over")
    assert before < stored
    assert names(world) == []
    assert look(world)[name][0] >= stored + LEAP
    fill(world)
    world.healthy()


def test_what_only_the_dead_and_the_leased_have_counts_too(world: World) -> None:
    world.in_stream(3)
    (leased,) = world.claim()
    world.die(leased, halt=True)
    world.sql("delete from holdfast.message")
    world.sql("delete from holdfast.stream")
    for name in all_names(world):
        lag(world, name)
    assert "sequence-behind" in names(world)
    world.operations.repair()
    assert names(world) == []
    last = look(world)
    assert last["messages"][0] > leased.message.seq
    if "positions" in last:
        assert last["positions"][0] > (leased.message.position or 0)


def test_a_leap_raises_what_is_not_behind(world: World) -> None:
    fill(world)
    before = look(world)
    done = world.operations.repair(leap=True)
    assert {each.name for each in done.raised} == set(all_names(world))
    # The order is written down with a number from behind the leap.
    assert all(each.after == before[each.name][0] + LEAP for each in done.raised)
    world.in_stream(1)
    assert look(world)["messages"][1] > before["messages"][0] + LEAP


def test_a_repair_never_lowers(world: World) -> None:
    """Somebody else has raised it since it was looked at."""
    fill(world)
    (found,) = [each for each in world.store.run(sequences.look()) if each.name == "messages"]

    def lower() -> Any:
        yield sequences.sql("sequence_raise", sequence=found.sequence, value=1)

    world.store.run(lower())
    assert look(world)["messages"] == (found.last, found.stored)


def application(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.handler("t")
    async def work(n: int) -> None: ...

    app.migrate()
    return app


def test_many_repair_at_once_while_others_publish(url: str) -> None:
    """On a clock that runs. No number is given twice, and nobody is refused once it is repaired."""
    app = application(url)
    app.publish_many(app.message("t", n, stream=f"s{n % 3}") for n in range(50))
    world = World(app.store, None, app.settings, app.operations)
    for name in all_names(world):
        lag(world, name)
    app.operations.repair()
    failures: list[BaseException] = []

    def attempt(do: Any) -> None:
        try:
            do()
        except BaseException as error:
            failures.append(error)

    def publish() -> None:
        other = application(url)
        for n in range(20):
            other.publish("t", n, stream=f"s{n % 3}")
        other.close()

    def repair() -> None:
        other = Operations(open_store(url, Settings(), SystemClock()))
        for n in range(5):
            other.repair(leap=n % 2 == 0)
        other._desk.store.close()

    threads = [threading.Thread(target=attempt, args=(do,)) for do in (publish, repair, publish, repair)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert world.sql("select count(*), count(distinct seq) from holdfast.message") == [(90, 90)]
    found = {each.name for each in app.operations.doctor()}
    assert not found & {"sequence-behind", "stream-order", "stranded-stream", "stream-count"}
    app.close()


# --- PostgreSQL: what was placed meanwhile ----------------------------------------------------------------------------


@pytest.fixture
def behind(postgres_dsn: str) -> Iterator[tuple[World, list[Any]]]:
    """Older messages with places from 1000 on, the first in hand; and three that were placed after a switch-over."""
    world = make(postgres_dsn, MovableClock(NOON))
    world.sql("select setval('holdfast.position', 1000)")
    ids = world.in_stream(3)
    world.clock.advance(seconds=1)
    lag(world, "positions")
    ids += world.in_stream(3)
    yield world, ids
    world.store.close()


def test_messages_before_the_head_are_shown_and_go_behind(behind: Any) -> None:
    world, ids = behind
    (found,) = [each for each in world.operations.doctor() if each.name == "stream-order"]
    assert "3 messages of stream s of queue q are before its head" in found.text
    assert "sequence-behind" in names(world)
    assert world.order() == [*ids[3:], *ids[:3]]
    done = world.operations.repair()
    assert done.streams == (("q", "s"),)
    assert world.order() == ids
    assert names(world) == []
    world.healthy()
    for id in ids:
        (leased,) = world.claim()
        assert leased.message.id == id
        world.done(leased)
    (line,) = world.operations.audit(action="repair")
    assert line.ids == ("q/s",)


def test_while_a_worker_holds_the_run_of_the_older_ones(behind: Any) -> None:
    world, ids = behind
    held = world.claim(run=3)
    assert [each.message.id for each in held] == ids[:3]
    world.operations.repair()
    settlements = [Settlement(each, Outcome.DONE) for each in held]
    assert len(world.store.run(engine.settle(settlements, ()))) == 3
    assert [leased.message.id for leased in world.claim(run=3)] == ids[3:]
    world.healthy()


def test_a_stream_that_was_stranded_by_it_goes_on(behind: Any) -> None:
    world, ids = behind
    for _ in range(3):
        (leased,) = world.claim()
        world.done(leased)
    assert world.claim() == []  # the head is gone, and nothing stands behind it
    assert "stranded-stream" in names(world)
    done = world.operations.repair()
    assert done.streams == (("q", "s"),)
    assert [leased.message.id for leased in world.claim(run=3)] == ids[3:]
    world.healthy()


def test_more_streams_than_fit_into_one_transaction(behind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = behind
    world.operations.repair()
    monkeypatch.setattr(sequences, "STREAMS_MAX", 2)
    for n in range(5):
        world.in_stream(2, f"many{n}")
        world.sql(f"update holdfast.message set position = {n + 1} where stream = 'many{n}' and not head")
    assert len(world.operations.repair().streams) == 5
    assert names(world) == []


# --- Workers ----------------------------------------------------------------------------------------------------------


def test_a_worker_that_starts_repairs_first(url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Holdfast(url)
    handled: list[int] = []

    @app.handler("t")
    async def work(n: int) -> None:
        handled.append(n)

    app.migrate()
    world = World(app.store, None, app.settings, app.operations)
    if "positions" in all_names(world):
        world.sql("select setval('holdfast.position', 1000)")
    for n in range(4):
        app.publish("t", n, stream="s")
    asyncio.run(app.worker(queues=["none"], until_idle=True).run())  # one that has a number
    for name in all_names(world):
        if name != "messages":
            lag(world, name)
    for n in range(4, 8):
        app.publish("t", n, stream="s")
    with caplog.at_level(logging.WARNING):
        asyncio.run(app.worker(until_idle=True).run())
    assert handled == list(range(8))
    told = [
        record.getMessage() for record in caplog.records if "Sequences were behind" in record.getMessage()
    ]
    assert len(told) == (1 if "positions" in all_names(world) else len(told))
    app.close()


@pytest.mark.one_postgres
def test_rows_without_their_sequences(postgres_dsn: str) -> None:
    """A dump of the data alone, or logical replication: tables are copied, sequences are not."""
    app = application(postgres_dsn)
    for n in range(5):
        app.publish("t", n, stream=f"s{n % 2}")
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        for name in ("holdfast.position", "holdfast.message_seq_seq", "holdfast.worker_id_seq"):
            db.execute(f"alter sequence {name} restart".encode())
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute("insert into holdfast.message (type, body) values ('t', '1')")
    names = [each.name for each in app.operations.doctor()]
    assert names.count("sequence-behind") == 2
    app.operations.repair()
    with psycopg.connect(postgres_dsn, autocommit=True) as db:
        db.execute("insert into holdfast.message (type, body) values ('t', '1')")
    assert "sequence-behind" not in [each.name for each in app.operations.doctor()]
    app.close()


# --- A SQLite file that is copied while it is used --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["backup", "vacuum", "all files"])
def test_a_copy_of_a_file_in_use_is_whole(tmp_path: Path, how: str) -> None:
    """What docs/operations.md says about backups. A copy of the file alone lacks what is in the WAL."""
    path, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    app = application(f"sqlite:///{path}")
    for n in range(20):
        app.publish("t", n, stream="s")
    source = sqlite3.connect(path)
    if how == "backup":
        with sqlite3.connect(copy) as target:
            source.backup(target)
    elif how == "vacuum":
        source.execute("vacuum into ?", [str(copy)])
    else:  # while nobody writes
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    restored = application(f"sqlite:///{copy}")
    assert restored.operations.status().depth == 20
    found = {each.name for each in restored.operations.doctor()}
    assert not found & {"sequence-behind", "stream-count", "stranded-stream"}
    restored.publish("t", 21, stream="s")
    assert [each.id for each in restored.operations.messages.find(limit=1)]
    restored.close()
    source.close()
    app.close()
