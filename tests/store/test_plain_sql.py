"""A plain INSERT is a publish, in any language: routed, placed, checked. These producers have the machine's clock."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.clock import micros, wall_clock
from holdfast.model.work import Want
from tests.store.box import QUEUE, Box, done, names, new


@pytest.fixture
def box(empty_box: Box) -> Box:
    empty_box.clock.instant = wall_clock() + timedelta(minutes=1)
    empty_box.subscribe()
    return empty_box


def insert(box: Box, *rows: dict[str, Any]) -> None:
    """One transaction with an INSERT for each row."""
    with box.connection() as db:
        for row in rows:
            columns = ", ".join(["type", *row])
            mark = "?" if box.sqlite else "%s"
            marks = ", ".join([mark] * (len(row) + 1))
            table = "holdfast_message" if box.sqlite else "holdfast.message"
            values = [as_stored(box, value) for value in row.values()]
            db.execute(f"insert into {table} ({columns}) values ({marks})", ["order.placed", *values])
        db.commit()


def as_stored(box: Box, value: Any) -> Any:
    return micros(value) if isinstance(value, datetime) and box.sqlite else value


def test_it_is_routed_to_every_subscriber(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    insert(box, {"body": '"a"'})
    assert names(box.claim(QUEUE)) == names(box.claim("ledger")) == ["a"]
    (first, second) = box.messages()
    assert first.id == second.id
    assert first.id.version == 4


def test_it_gets_its_place_in_the_stream(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    box.send("first", stream="s")
    insert(box, *({"body": f'"{name}"', "stream": "s"} for name in "abc"))
    box.send("last", stream="s")
    for queue in (QUEUE, "ledger"):
        assert box.stream("s", queue).open == 5
        assert names(box.claim(queue)) == ["first", "a", "b", "c", "last"]


def test_a_position_that_a_producer_gives_itself_means_nothing(pg_box: Box) -> None:
    """Found on a last reading: it was taken for a guess, and whoever came later stood before it."""
    box = pg_box
    box.clock.instant = wall_clock() + timedelta(minutes=1)
    with box.connection() as db:
        box.publish_on(db, new("first", stream="s"))
        db.commit()
    insert(box, {"body": '"second"', "stream": "s", "position": 10**15})
    with box.connection() as db:
        box.publish_on(db, new("third", stream="s"))
        db.commit()
    assert names(box.claim()) == ["first", "second", "third"]


def test_it_becomes_the_head_of_an_empty_stream(box: Box) -> None:
    insert(
        box, {"body": '"a"', "stream": "s"}, {"body": '"b"', "stream": "s"}, {"body": '"c"', "stream": "t"}
    )
    assert sorted(names(box.claim(run=1))) == ["a", "c"]


@pytest.mark.covers("X42")
def test_it_is_kept_when_nobody_subscribes(empty_box: Box) -> None:
    box = empty_box
    box.clock.instant = wall_clock() + timedelta(minutes=1)
    insert(box, {"body": '"a"', "stream": "s"}, {"body": '"b"'})
    assert [m.queue for m in box.messages()] == [None, None]
    box.subscribe()
    assert names(box.claim()) == ["a", "b"]


def test_it_waits_for_its_time(box: Box) -> None:
    due = box.now + timedelta(minutes=5)
    insert(box, {"body": '"later"', "due_at": due}, {"body": '"now"'})
    assert names(box.claim()) == ["now"]
    box.clock.instant = due - timedelta(microseconds=1)
    assert box.claim() == []
    box.clock.instant = due
    assert names(box.claim()) == ["later"]


def test_scheduled_into_a_stream_it_blocks_nothing(box: Box) -> None:
    due = box.now + timedelta(minutes=5)
    insert(box, {"body": '"later"', "stream": "s", "due_at": due}, {"body": '"now"', "stream": "s"})
    leased = box.claim_one()
    assert names([leased]) == ["now"]
    box.settle(done(leased))
    assert box.claim() == []
    box.clock.instant = due
    assert names(box.claim()) == ["later"]


@pytest.mark.parametrize("body", ["not json", "", "{", '{"a":}'])
def test_a_body_that_is_not_json_is_refused(box: Box, body: str) -> None:
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.InvalidTextRepresentation), match=r"(?i)json"):
        insert(box, {"body": '"fine"'}, {"body": body})
    assert box.messages() == []


UNREADABLE: list[tuple[str, Any, Any]] = [  # column, on SQLite, on PostgreSQL
    ("id", "not-a-uuid", "not-a-uuid"),
    ("id", "1", "1"),
    ("id", b"0123456789abcdef", "0123"),
    ("id", "0000000-00000-0000-0000-000000000000", "g0000000-0000-0000-0000-000000000000"),
    ("due_at", "2030-01-01", "soon"),
    ("due_at", 1.5, "12000-01-01"),
    ("due_at", 253402300800000000, "infinity"),
    ("deadline", "2030-01-01", "infinity"),
    ("deadline", 2**60, "10000-01-01 00:00:00+00"),
    ("created_at", "now", "-infinity"),
    ("created_at", -(2**60), "0100-01-01 BC"),
    ("claimable_at", "now", "-infinity"),
]


@pytest.mark.parametrize(("column", "sqlite", "postgres"), UNREADABLE)
def test_what_no_worker_could_read_is_refused(box: Box, column: str, sqlite: Any, postgres: Any) -> None:
    """Stored, it would end every worker that claims it, and with it all that shares its queue."""
    with pytest.raises((sqlite3.IntegrityError, psycopg.DataError)) as refused:
        insert(box, {"body": '"fine"'}, {"body": "1", column: sqlite if box.sqlite else postgres})
    assert not box.sqlite or str(refused.value).startswith("holdfast: ")
    assert box.messages() == []


def test_what_a_producer_may_say_is_read_as_it_was_said(box: Box) -> None:
    id, at = "a0000000-0000-4000-8000-00000000000f", box.now - timedelta(minutes=1)
    insert(
        box, {"body": "1", "id": id, "due_at": at, "deadline": box.now + timedelta(days=1), "created_at": at}
    )
    message = box.claim_one().message
    assert (str(message.id), message.due_at, message.created_at) == (id, at, at)


def test_it_is_handled_like_any_other(box: Box) -> None:
    insert(box, {"body": '"a"', "stream": "s", "subject": "x", "headers": '{"h":1}'})
    leased = box.claim_one()
    assert (leased.message.subject, leased.message.headers) == ("x", '{"h":1}')
    box.settle(done(leased, new("next", stream="s")))
    assert names(box.claim()) == ["next"]


def test_a_rollback_takes_it_back(box: Box) -> None:
    with box.connection() as db:
        table = "holdfast_message" if box.sqlite else "holdfast.message"
        db.execute(f"""insert into {table} (type, body, stream) values ('order.placed', '1', 's')""")
        db.rollback()
    assert (box.messages(), box.read("stream")) == ([], [])


def test_it_mixes_with_publishing_in_one_transaction(box: Box) -> None:
    table = "holdfast_message" if box.sqlite else "holdfast.message"
    with box.connection() as db:
        box.publish_on(db, new("a", stream="s"))
        db.execute(f"""insert into {table} (type, body, stream) values ('order.placed', '"b"', 's')""")
        box.publish_on(db, new("c", stream="s"))
        db.commit()
    assert names(box.claim()) == ["a", "b", "c"]


LAST = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "fields", [{"deadline": LAST}, {"deadline": LAST, "stream": "s", "delay": 5.0}, {"due_at": LAST}]
)
def test_what_the_engine_may_store_is_never_refused(empty_box: Box, fields: dict[str, Any]) -> None:
    """Found in review: a timer that nobody subscribes to was refused when it fired, and with it every exchange."""
    box = empty_box
    box.publish(new("far", **fields))
    box.clock.advance(seconds=10)
    box.subscribe("other", "another.type")
    box.publish(new("near", type="another.type"))
    assert names(box.exchange(want=[Want("other", 10)], total=10).work) == ["near"]
    box.subscribe()
    # Whose it is, is decided when it is due.
    waits = QUEUE if fields.get("due_at") is None else "holdfast/timer"
    assert [m.deadline or m.due_at for m in box.messages(waits)] == [LAST]


@pytest.mark.covers("X61")
def test_one_id_twice_while_nobody_subscribes_is_adopted_once_and_kept_twice(empty_box: Box) -> None:
    """Found in review: the first who subscribed was refused, for ever. Then one of them was deleted."""
    box, first = empty_box, new("first", stream="s")
    box.publish(first)
    box.publish(replace(new("second", stream="s"), id=first.id))
    box.publish(new("third", stream="s"))
    box.subscribe()
    box.subscribe("late", "order.*")
    assert names(box.claim()) == ["first", "third"]
    assert [m.queue for m in box.messages()] == [QUEUE, QUEUE]
    (kept,) = box.read("dead")
    assert (kept.id, kept.queue, kept.body, kept.reason) == (first.id, QUEUE, '"second"', 12)
