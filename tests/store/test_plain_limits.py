"""What a plain INSERT may not say, with a queue named or not: the engine's own columns, what `publish` refuses too."""

from __future__ import annotations

import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.clock import MovableClock, wall_clock
from holdfast.settings import Settings
from holdfast.store import SqliteStore, migrate
from holdfast.store.migrate import steps
from tests.store.box import QUEUE, Box, done, names
from tests.store.test_plain_sql import insert

LARGEST = 2**31 - 1


@pytest.fixture
def box(empty_box: Box) -> Box:
    empty_box.clock.instant = wall_clock() + timedelta(minutes=1)
    empty_box.subscribe()
    return empty_box


OURS: dict[str, Any] = {
    "status": 3, "epoch": 1, "attempts": 1, "failures": 1, "vanished": 1, "refunds": 1, "redrives": 1, "reason": 2,
    "errors": "[]", "dedupe": "k", "target": "other",
}  # fmt: skip
BOTH: list[tuple[str, Any]] = [
    *OURS.items(),
    *((name, LARGEST) for name in ("epoch", "attempts", "failures", "vanished", "refunds", "redrives", "status")),
    *((name, -1) for name in ("epoch", "attempts", "failures", "vanished", "refunds", "redrives", "status")),
    ("body", "not json"),
    ("body", '"' + "x" * 1024 * 1024 + '"'),
    ("headers", "not json"),
    ("headers", "[]"),
    ("headers", '"x"'),
    ("headers", '{"traceparent":{}}'),
    ("headers", '{"a":null}'),
    ("headers", '{"a":"' + "x" * 16_384 + '"}'),
    *((name, value) for name in ("stream", "subject") for value in ("", " x", "x ", "\x1b]0;x", "\u202ex", "x" * 301)),
]  # fmt: skip
SQLITE: list[tuple[str, Any]] = [
    ("epoch", 2**63 - 1), ("epoch", "x"), ("attempts", "x"), ("attempts", 1.5), ("status", "x"), ("errors", "not json"),
    ("stream", b"\xff"), ("subject", b"\xff\xfe"), ("headers", b"\xff"), ("body", b'{"a":1}'), ("position", 7),
    ("seq", 2**63 - 1), ("seq", 2**62), ("xact", 1), ("xact", 2), ("head", 0), ("head", "x"), ("subject", "a\x00b"),
]  # fmt: skip


def refusals(place: str) -> list[tuple[str, Any]]:
    return BOTH + (SQLITE if place == "sqlite" else [])


@pytest.mark.covers("X62")
@pytest.mark.parametrize("named", [False, True], ids=["for all", "for one queue"])
def test_what_it_may_not_say_is_refused(box: Box, place: str, named: bool) -> None:
    to = {"queue": QUEUE} if named else {}
    insert(box, {"body": '"first"', **to})
    for column, value in refusals(place):
        if named and (column, value) in (("status", 3), ("dedupe", "k"), ("target", "other")) and box.sqlite:
            continue  # a release before this one, still at work, says these of its own messages
        with pytest.raises((sqlite3.IntegrityError, psycopg.DataError), match=r"holdfast: |json"):
            insert(box, {"body": '"fine"', **to}, {"body": "1", **to, column: value})
    assert names(box.claim()) == ["first"]


@pytest.mark.covers("X62")
@pytest.mark.parametrize("type_", ["", " x", "a*", "x" * 201, "a\nb"])
def test_a_type_that_publish_refuses_is_refused(box: Box, type_: str) -> None:
    table = "holdfast_message" if box.sqlite else "holdfast.message"
    for more in ("", f", '{QUEUE}'"):
        columns, mark = "body, type" + (", queue" if more else ""), "?" if box.sqlite else "%s"
        text = f"insert into {table} ({columns}) values ('1', {mark}{more})"
        with (
            box.connection() as db,
            pytest.raises((sqlite3.IntegrityError, psycopg.DataError), match=r"holdfast: .*type"),
        ):
            db.execute(text, [type_])
    assert box.messages() == []


@pytest.mark.covers("X62")
@pytest.mark.parametrize("queue", ["", "holdfast/timer", "holdfast/other", "x" * 201])
def test_a_queue_that_no_handler_can_have_is_refused(box: Box, queue: str) -> None:
    with pytest.raises((sqlite3.IntegrityError, psycopg.DataError), match="holdfast: "):
        insert(box, {"body": "1", "queue": queue})


def test_for_one_queue_it_is_routed_there_alone_and_gets_its_place(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    box.send("first", stream="s")
    insert(box, {"body": '"a"', "queue": QUEUE, "stream": "s"}, {"body": '"b"', "queue": QUEUE})
    insert(box, {"body": '"c"', "queue": QUEUE, "stream": "s"})
    box.send("last", stream="s")
    assert sorted(names(box.claim(run=1))) == ["b", "first"]
    assert names(box.claim("ledger")) == ["first", "last"]
    assert box.stream("s").open == 4


def test_for_one_queue_it_waits_for_its_time(box: Box) -> None:
    due = box.now + timedelta(minutes=5)
    box.subscribe("ledger", "order.*")
    insert(box, {"body": '"later"', "queue": QUEUE, "stream": "s", "due_at": due})
    insert(box, {"body": '"now"', "queue": QUEUE, "stream": "s"})
    leased = box.claim_one()
    assert names([leased]) == ["now"]
    box.settle(done(leased))
    box.clock.instant = due
    assert names(box.claim()) == ["later"]
    assert box.claim("ledger") == []


@pytest.mark.covers("X62")
def test_a_number_that_it_gives_itself_means_nothing(pg_box: Box) -> None:
    """Else a publish that draws it one day would be refused."""
    insert(pg_box, {"body": '"a"', "seq": 2**63 - 1}, {"body": '"b"', "seq": 2**63 - 1, "queue": QUEUE})
    assert all(each.seq < 2**40 for each in pg_box.messages())


@pytest.mark.covers("X62")
def test_a_number_that_nothing_can_follow_stops_no_publisher(tmp_path: Path) -> None:
    """Neither by plain SQL nor in a database of an older release, which took it: that one is mended when migrated."""
    path = tmp_path / "old.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("create table holdfast_schema (version integer primary key, applied_at text not null)")
    for version, text in steps("sqlite"):
        if version < 7:
            for statement in migrate.split(text):
                db.execute(statement)
            db.execute("insert into holdfast_schema values (?, 'then')", [version])
    db.execute("insert into holdfast_subscription (pattern, queue) values ('order.placed', 'mail')")
    db.execute("insert into holdfast_message (type, body, stream) values ('order.placed', '\"a\"', 's')")
    for seq in (2**63 - 3, 2**63 - 1):
        text = (
            "insert into holdfast_message (seq, type, body, stream) values (?, 'order.placed', '\"b\"', 's')"
        )
        db.execute(text, [seq])
    db.close()
    store = SqliteStore(str(path), Settings(), MovableClock(wall_clock() + timedelta(minutes=1)))
    store.migrate()
    box = Box(store, store.clock)  # type: ignore[arg-type]
    box.send("c", stream="s")
    assert names(box.claim()) == ["a", "b", "b", "c"]
    assert max(each.seq for each in box.messages()) < 100
    store.close()


def test_every_insert_of_the_engine_says_that_it_is_its_own() -> None:
    """One that does not is taken for a producer's: checked, and given a place, once more."""
    folder = Path(migrate.__file__).parent
    for file in [
        *folder.glob("functions/*.sql"),
        *folder.glob("sql/*/*.sql"),
        folder / "migrations/0007_trust.sqlite.sql",
    ]:
        for found in re.finditer(
            r"insert into holdfast[._]message (?:as \w+ )?\(([^)]*)\)", file.read_text()
        ):
            assert re.search(r"\bplain\b", found[1]), f"{file.name}: {found[0]}"


def test_what_the_engine_stores_is_not_marked(box: Box) -> None:
    box.send("a")
    box.send("b", stream="s")
    box.send("c", type="nobody.wants")
    insert(box, {"body": '"d"'}, {"body": '"e"', "stream": "s"})
    assert {mark for (mark,) in box.query("select plain from {message}")} == {None}
