"""Start, signal and cancel by plain SQL, in the caller's transaction: functions on PostgreSQL, views on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Flow, InstanceExists
from holdfast.clock import MovableClock, micros, wall_clock
from tests.orchestrations.shop import Shop
from tests.store.state import check_invariants

ARGUMENTS = {
    "start": ("orchestration", "id", "input", "deadline", "attributes"),
    "signal": ("id", "name", "body"),
    "cancel": ("id", "why"),
}


@contextmanager
def opened(url: str) -> Iterator[Shop]:
    made = Shop(url, clock=MovableClock(wall_clock() + timedelta(minutes=1)))  # SQL has the machine's clock

    @made.app.orchestration(version="2")
    async def greet(name: str | None, flow: Flow) -> str:
        word = await flow.signal("word", str)
        left = "" if flow.deadline is None else " in time"
        return f"{word} {name}{left}"

    @made.app.orchestration()
    async def early(flow: Flow) -> list[int]:
        return [await flow.signal("n", int) for _ in range(2)]

    @made.app.orchestration()
    async def parent(id: str, flow: Flow) -> list[int]:
        return await early.using(id=id)()

    made.app.prepare()
    yield made
    made.forget()
    check_invariants(made.app.store)
    made.app.close()


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    with opened(url) as made:
        yield made


def call(shop: Shop, db: Any, what: str, **given: Any) -> None:
    """The documented SQL, with these arguments."""
    assert set(given) <= set(ARGUMENTS[what])
    if shop.url.startswith("sqlite"):
        marks = ", ".join("?" * len(given))
        text = f"insert into holdfast_{what}_orchestration ({', '.join(given)}) values ({marks})"
    else:
        text = f"select holdfast.{what}_orchestration({', '.join(f'{each} => %s' for each in given)})"
    db.execute(text, list(given.values()))


def commit(shop: Shop, what: str, **given: Any) -> None:
    with shop.connection() as db:
        call(shop, db, what, **given)
        db.commit()


def test_it_starts_and_signals_in_the_callers_transaction(shop: Shop) -> None:
    with shop.connection() as db:
        db.execute("create table mine (id text)")
        call(
            shop,
            db,
            "start",
            orchestration="greet@2",
            id="one",
            input='"Ann"',
            attributes='{"customer": "17"}',
        )
        call(shop, db, "signal", id="one", name="word", body='"hello"')
        db.execute("insert into mine values ('one')")
        db.commit()
    shop.drain()
    assert shop.of.result("one") == "hello Ann"
    assert shop.of.status("one").attributes == {"customer": "17"}
    assert shop.query("select id from mine") == [("one",)]


def test_what_is_rolled_back_never_was(shop: Shop) -> None:
    with shop.connection() as db:
        call(shop, db, "start", orchestration="greet@2", id="one")
        call(shop, db, "signal", id="one", name="word", body='"a"')
        call(shop, db, "signal", id="other", name="word")
        call(shop, db, "cancel", id="one")
        db.rollback()
    assert shop.query(f"select count(*) from {shop.prefix}instance") == [(0,)]
    assert shop.query(f"select count(*) from {shop.prefix}message") == [(0,)]


def test_an_id_is_started_once_by_whatever_way(shop: Shop) -> None:
    commit(shop, "start", orchestration="greet@2", id="one")
    with pytest.raises(InstanceExists):
        shop.of.start(shop.of.declared["greet@2"], "Bob", id="one")
    with pytest.raises(Exception, match="exists already"):
        commit(shop, "start", orchestration="early@1", id="one")
    shop.of.start(shop.of.declared["greet@2"], "Bob", id="two")
    with pytest.raises(Exception, match="exists already"):
        commit(shop, "start", orchestration="greet@2", id="two")
    assert shop.query(f"select count(*) from {shop.prefix}message") == [(2,)]


def test_signals_before_the_start_come_in_their_order(shop: Shop) -> None:
    commit(shop, "signal", id="one", name="n", body="1")
    shop.of.signal("one", "n", 2)
    shop.drain()
    commit(shop, "start", orchestration="early@1", id="one")
    shop.advance(seconds=40)
    assert shop.of.result("one") == [1, 2]


def test_a_signal_after_the_start_does_not_overtake_one_from_before(shop: Shop) -> None:
    """The first waits for its next look at that moment; it is passed on at once, whoever starts."""
    for id, first, start, second in (
        ("one", "sql", "library", "library"),
        ("two", "library", "sql", "library"),
        ("three", "library", "library", "sql"),
        ("four", "sql", "sql", "sql"),
    ):
        signal(shop, first, id, 1)
        shop.drain()
        if start == "sql":
            commit(shop, "start", orchestration="early@1", id=id)
        else:
            shop.of.start(shop.of.declared["early@1"], id=id)
        signal(shop, second, id, 2)
        shop.drain()
        assert shop.of.result(id) == [1, 2]


def test_a_signal_to_a_child_does_not_overtake_one_from_before_its_start(shop: Shop) -> None:
    shop.of.signal("kid", "n", 1)
    shop.drain()
    shop.of.start(shop.of.declared["parent@1"], "kid", id="one")
    shop.drain()
    shop.of.signal("kid", "n", 2)
    shop.drain()
    assert shop.of.result("one") == [1, 2]


def test_a_signal_does_not_overtake_one_of_its_own_transaction(shop: Shop) -> None:
    with shop.connection() as db:
        call(shop, db, "signal", id="one", name="n", body="1")
        call(shop, db, "start", orchestration="early@1", id="one")
        call(shop, db, "signal", id="one", name="n", body="2")
        db.commit()
    with shop.connection() as db:
        shop.of.signal("two", "n", 1, on=db)
        shop.of.start(shop.of.declared["early@1"], id="two", on=db)
        shop.of.signal("two", "n", 2, on=db)
        db.commit()
    shop.drain()
    assert shop.of.result("one") == shop.of.result("two") == [1, 2]


def test_a_dead_letter_from_before_the_start_holds_up_no_later_signal(shop: Shop) -> None:
    shop.of.signal("one", "n", 0)
    shop.advance(days=8)
    shop.of.start(shop.of.declared["early@1"], id="one")
    for n in (1, 2):
        shop.of.signal("one", "n", n)
    shop.drain()
    assert shop.of.result("one") == [1, 2]


def signal(shop: Shop, way: str, id: str, n: int) -> None:
    if way == "sql":
        commit(shop, "signal", id=id, name="n", body=str(n))
    else:
        shop.of.signal(id, "n", n)


def test_a_signal_for_an_instance_that_never_starts_is_a_dead_letter(shop: Shop) -> None:
    commit(shop, "signal", id="one", name="n", body="1")
    shop.advance(days=8)
    assert [each.queue for each in shop.app.operations.dead.list()] == ["holdfast/signals"]


def test_cancel_reaches_the_code(shop: Shop) -> None:
    commit(shop, "start", orchestration="early@1", id="one")
    shop.drain()
    commit(shop, "cancel", id="one", why="nobody wants it")
    shop.drain()
    assert shop.of.status("one").state == "cancelled"
    for what in ({"what": "cancel", "id": "one"}, {"what": "signal", "id": "one", "name": "n"}):
        with pytest.raises(Exception, match="nothing was stored"):
            commit(shop, **what)
    assert shop.query(f"select count(*) from {shop.prefix}message") == [(0,)]


def test_a_suspended_instance_gets_it_when_it_goes_on(shop: Shop) -> None:
    commit(shop, "start", orchestration="greet@2", id="one", input='"Ann"')
    shop.drain()
    shop.app.operations.orchestrations.suspend("one", "look")
    commit(shop, "signal", id="one", name="word", body='"hi"')
    shop.drain()
    assert shop.of.status("one").state == "suspended"
    shop.app.operations.orchestrations.resume("one")
    shop.drain()
    assert shop.of.result("one") == "hi Ann"


def test_cancelling_a_paused_instance_lets_it_try_again(shop: Shop) -> None:
    commit(shop, "start", orchestration="greet@2", id="one", input='"Ann"')
    shop.drain()
    shop.app.operations.orchestrations.suspend("one", "look")
    commit(shop, "signal", id="one", name="other")
    shop.drain()  # the stream is halted now
    shop.execute(f"update {shop.prefix}instance set state = 'paused'")
    shop.execute(f"update {shop.prefix}stream set halted_by = 'instance: paused' where name = 'one'")
    commit(shop, "cancel", id="one", why="no longer wanted")
    shop.drain()
    assert shop.of.status("one").state == "cancelled"


def test_a_deadline_is_the_one_of_start(shop: Shop) -> None:
    until = shop.clock.instant + timedelta(hours=1)
    deadline = micros(until) if shop.url.startswith("sqlite") else until
    commit(shop, "start", orchestration="greet@2", id="one", input="null", deadline=deadline)
    commit(shop, "signal", id="one", name="word", body='"hi"')
    shop.drain()
    assert shop.of.result("one") == "hi None in time"


WRONG = [
    ("start", {"orchestration": "greet", "id": "x"}, "name@version"),
    ("start", {"orchestration": "greet@3", "id": "x"}, "declared"),
    ("start", {"orchestration": "double", "id": "x"}, "name@version"),
    ("start", {"orchestration": None, "id": "x"}, "name@version"),
    ("start", {"orchestration": "greet@2", "id": ""}, "id"),
    ("start", {"orchestration": "greet@2", "id": " x"}, "id"),
    ("start", {"orchestration": "greet@2", "id": "a\x07b"}, "id"),
    ("start", {"orchestration": "greet@2", "id": "x" * 301}, "id"),
    ("start", {"orchestration": "greet@2", "id": "x", "input": "{"}, "(?i)json"),
    ("start", {"orchestration": "greet@2", "id": "x", "input": '"' + "x" * 1048576 + '"'}, "1048576"),
    ("start", {"orchestration": "greet@2", "id": "x", "attributes": "[]"}, "attributes"),
    ("start", {"orchestration": "greet@2", "id": "x", "attributes": '{"a b": "1"}'}, "attribute"),
    ("start", {"orchestration": "greet@2", "id": "x", "attributes": '{"a": 1}'}, "attribute"),
    ("start", {"orchestration": "greet@2", "id": "x", "attributes": '{"a": ""}'}, "attribute"),
    ("start", {"orchestration": "greet@2", "id": "x",
               "attributes": "{" + ", ".join(f'"a{n}": "b"' for n in range(21)) + "}"}, "20"),
    ("signal", {"id": "x", "name": ""}, "name"),
    ("signal", {"id": "x", "name": None}, "name"),
    ("signal", {"id": None, "name": "n"}, "id"),
    ("signal", {"id": "x", "name": "n", "body": "{"}, "(?i)json"),
    ("signal", {"id": "x", "name": "n", "body": '"' + "x" * 1048576 + '"'}, "1048576"),
    ("cancel", {"id": "nobody"}, "instance"),
    ("cancel", {"id": None}, "instance"),
]  # fmt: skip


def test_what_is_wrong_is_refused_and_stores_nothing(shop: Shop) -> None:
    for what, given, told in WRONG:
        with pytest.raises(Exception, match=told):
            commit(shop, what, **given)
    for table in ("instance", "message", "stream"):
        assert shop.query(f"select count(*) from {shop.prefix}{table}") == [(0,)], table


def test_what_types_refuse_on_postgresql_is_refused_on_sqlite(tmp_path: Path) -> None:
    """SQLite takes any value in any column."""
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("start", {"orchestration": "greet@2", "id": 7}), ("start", {"orchestration": "greet@2", "id": "a\0b"}),
        ("start", {"orchestration": "greet@2"}), ("start", {"orchestration": "greet@2", "id": "x", "input": 7}),
        ("start", {"orchestration": "greet@2", "id": "x", "deadline": "tomorrow"}),
        ("start", {"orchestration": "greet@2", "id": "x", "deadline": 1 << 60}),
        ("signal", {"id": "x", "name": "n", "body": b"1"}), ("signal", {"id": b"x", "name": "n"}),
    ]  # fmt: skip
    with opened(f"sqlite:///{tmp_path / 'own.db'}") as shop:
        for what, given in wrong:
            with pytest.raises(sqlite3.IntegrityError, match="holdfast: nothing was"):
                commit(shop, what, **given)
        assert shop.query("select count(*) from holdfast_message") == [(0,)]
