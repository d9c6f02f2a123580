"""Ids that publishers give: unique in a queue among what is pending, scheduled, unrouted or dead.

A second one is refused, and where that shows only later both are kept: nothing is deleted or overwritten.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast.errors import IdTaken
from holdfast.model.message import NewMessage
from holdfast.store.given import taken
from holdfast.store.plans import engine
from holdfast.store.text import load
from tests.store.box import QUEUE, TYPE, Box, dead, done, names, new
from tests.store.conftest import sqlite_box

X = UUID(int=61)


def own(name: Any, **fields: Any) -> NewMessage:
    """A message with an id of its publisher's."""
    return new(name, **{"id": X, "id_is_given": True, **fields})


def refused(box: Box, *messages: NewMessage) -> IdTaken:
    before = [(m.seq, m.epoch) for m in box.messages()], len(box.read("dead"))
    with pytest.raises(IdTaken) as caught:
        box.publish(*messages)
    assert ([(m.seq, m.epoch) for m in box.messages()], len(box.read("dead"))) == before
    return caught.value


# --- Refused at the publish -------------------------------------------------------------------------------------------


@pytest.mark.covers("X61")
def test_refused_while_it_is_pending_scheduled_or_dead_and_free_when_it_has_ended(box: Box) -> None:
    box.publish(own("first"))
    error = refused(box, own("second"))
    assert (error.id, error.queue, error.state) == (X, QUEUE, "pending")
    assert str(X) in str(error)
    assert f"pending in queue {QUEUE}. Wait until it has ended, cancel it" in str(error)
    assert refused(box, own("later", stream="s", delay=60.0)).state == "pending"
    leased = box.claim_one()
    box.settle(dead(leased))
    error = refused(box, own("third"))
    assert (error.state, error.number) == ("dead", leased.message.seq)
    assert "Redrive or discard it first" in str(error)
    box.query("delete from {dead}")
    box.publish(own("fourth"))
    box.settle(done(box.claim_one()))
    box.publish(own("fifth", delay=60.0))
    assert refused(box, own("sixth")).state == "scheduled"


@pytest.mark.covers("X61")
@pytest.mark.parametrize("target", [None, QUEUE])
def test_refused_while_it_is_scheduled_into_a_stream(box: Box, target: str | None) -> None:
    box.publish(own("timer", stream="s", delay=60.0, queue=target))
    assert refused(box, own("second")).state == "scheduled"
    assert refused(box, own("second", queue=QUEUE)).state == "scheduled"
    assert refused(box, own("second", stream="t", delay=5.0)).state == "scheduled"
    if target is None:
        box.subscribe("other", "another.*")
        box.publish(own("of another type", type="another.type"))  # nobody gets both


@pytest.mark.covers("X61")
def test_refused_while_it_is_unrouted(empty_box: Box) -> None:
    box = empty_box
    box.publish(own("first"))
    assert refused(box, own("second")).state == "unrouted"
    assert "Cancel it" in str(refused(box, own("second", stream="s", delay=5.0)))
    box.publish(own("of another type", type="another.type"))


def test_unique_in_a_queue_and_not_beyond(box: Box) -> None:
    box.subscribe("ledger", "entry.*")
    box.publish(own("mail"))
    box.publish(own("entry", type="entry.made"))
    assert refused(box, own("both", type="entry.made", queue=QUEUE)).queue == QUEUE
    assert refused(box, own("again", type="entry.other")).queue == "ledger"
    box.publish(own("elsewhere", queue="third"))


def test_one_of_several_refuses_the_whole_call(box: Box) -> None:
    box.publish(own("first"))
    assert refused(box, new("a"), own("b"), new("c", stream="s")).id == X


def test_twice_in_one_call(box: Box) -> None:
    assert refused(box, own("a"), own("b")).state == "given"
    assert refused(box, own("a", queue="q"), own("b", type="t", queue="q")).state == "given"
    box.subscribe(QUEUE, "another.*")
    error = refused(box, own("a"), own("b", type="another.type"))  # both come into one queue
    assert (error.id, error.state) == (X, "stored")


@pytest.mark.covers("X61", "X43")
def test_a_repeated_publish_with_its_dedupe_key_is_a_duplicate_and_not_refused(box: Box) -> None:
    box.publish(own("first", dedupe="k"))
    assert box.publish(own("first", dedupe="k")) == [(X, True)]
    assert refused(box, own("first", dedupe="other")).state == "pending"
    box.settle(done(box.claim_one()))
    assert box.publish(own("first", dedupe="k")) == [(X, True)]


def test_ids_that_the_engine_makes_are_not_looked_up(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = list(box.store.bound(engine.append([new("a")])))
    assert not [each for each in statements if "The first message, pending" in each.sql]


@pytest.mark.covers("X61")
def test_a_race_that_the_look_up_misses_is_told_in_our_words(pg_box: Box) -> None:
    """The second publisher waits for the first, and the unique index tells; the user's own violations stay theirs."""
    box, outcome = pg_box, list[BaseException]()
    with box.connection() as first:
        box.publish_on(first, own("first"))

        def second() -> None:
            try:
                box.publish(own("second"))
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=second)
        thread.start()
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        with psycopg.connect(box.dsn, autocommit=True) as look:
            while look.execute(waits).fetchone() == (0,):
                pass
        first.commit()
        thread.join()
    (error,) = outcome
    assert isinstance(error, IdTaken)
    assert (error.id, error.queue, error.state) == (X, QUEUE, "stored")
    assert isinstance(error.__cause__, psycopg.errors.UniqueViolation)
    assert names(box.claim()) == ["first"]


def test_a_unique_violation_of_the_users_own_stays_what_it_is(pg_box: Box) -> None:
    """Even of a table and an index that are called as ours are."""
    box = pg_box
    with box.connection() as db:
        db.execute("create schema theirs; create table theirs.message (id uuid constraint message_id unique)")
        db.execute("insert into theirs.message values (%s)", [X])
        db.execute(
            "create function theirs.copy() returns trigger language plpgsql as "
            "'begin insert into theirs.message values (new.id); return null; end'"
        )
        db.execute(
            "create trigger theirs after insert on holdfast.message for each row execute function theirs.copy()"
        )
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            box.publish_on(db, own("a"))
        assert taken(caught.value, "holdfast") is None
        db.rollback()


# --- Where it shows only later ----------------------------------------------------------------------------------------


def late(box: Box) -> list[tuple[Any, ...]]:
    """What was kept although its id was taken."""
    return [(d.queue, d.body, d.reason) for d in box.read("dead")]


@pytest.mark.covers("X61")
def test_a_timer_whose_id_is_pending_when_it_falls_due_is_kept(box: Box) -> None:
    """It was deleted, in silence."""
    box.subscribe("ledger", "order.*")
    box.publish(new("timer", id=X, stream="s", delay=60.0, headers='{"h":1}'))
    (timer,) = box.messages()
    box.publish(new("pending", id=X, queue=QUEUE))
    (_, pending) = box.messages()
    box.send("other", stream="s")
    box.pass_time(seconds=60)
    assert names(box.claim("ledger", run=1)) == ["other"]
    assert sorted((m.queue, m.body) for m in box.messages() if m.id == X) == [
        ("ledger", '"timer"'),
        (QUEUE, '"pending"'),
    ]
    (kept,) = box.read("dead")
    assert (kept.id, kept.queue, kept.seq, kept.body, kept.reason) == (X, QUEUE, timer.seq, '"timer"', 12)
    assert (kept.headers, kept.stream, kept.due_at, kept.position) == ('{"h":1}', "s", box.now, None)
    assert f"number {pending.seq}" in kept.errors[-1]["text"]
    assert [(each.id, each.seq, each.reason) for each in box.read("death")] == [(X, timer.seq, 12)]


@pytest.mark.covers("X61")
def test_a_timer_fires_although_its_id_is_dead(box: Box) -> None:
    box.publish(new("first", id=X))
    first = box.claim_one()
    box.publish(new("timer", id=X, stream="s", delay=60.0))
    box.settle(dead(first))
    box.pass_time(seconds=60)
    second = box.claim_one()
    assert names([second]) == ["timer"]
    box.settle(dead(second))
    assert [(d.seq, d.body) for d in box.read("dead")] == [
        (first.message.seq, '"first"'),
        (second.message.seq, '"timer"'),
    ]
    assert len(box.read("death")) == 2


@pytest.mark.covers("X61")
def test_deaths_of_one_id_at_one_instant_are_both_written_down(box: Box) -> None:
    box.publish(new("timer", id=X, stream="s", delay=60.0))
    box.publish(new("pending", id=X))
    pending = box.claim_one(lease=300.0)
    box.pass_time(seconds=60)
    box.turn(heads=1)
    box.settle(dead(pending))
    assert sorted(d.body for d in box.read("dead")) == ['"pending"', '"timer"']
    assert len({(each.died_at, each.seq) for each in box.read("death")}) == 2
    assert len({each.died_at for each in box.read("death")}) == 1


@pytest.mark.covers("X61")
def test_an_adopted_message_whose_id_is_pending_is_kept(empty_box: Box) -> None:
    box = empty_box
    box.publish(new("unrouted", id=X, stream="s", headers='{"h":1}'))
    (unrouted,) = box.messages()
    box.publish(new("pending", id=X, queue=QUEUE))
    subscriptions = {QUEUE: [TYPE], "also": ["order.*"]}  # in the second nobody is in its way
    box.store.run(engine.subscribe(subscriptions))
    assert sorted((m.queue, m.body) for m in box.messages()) == [("also", '"unrouted"'), (QUEUE, '"pending"')]
    (kept,) = box.read("dead")
    assert (kept.id, kept.queue, kept.seq, kept.body, kept.reason) == (
        X,
        QUEUE,
        unrouted.seq,
        '"unrouted"',
        12,
    )
    assert (kept.headers, kept.stream, kept.created_at) == ('{"h":1}', "s", unrouted.created_at)


def test_adoption_waits_for_one_who_is_just_storing_the_id(pg_box: Box) -> None:
    """The adopting insert gives way to the one that it waited for."""
    box = pg_box
    box.publish(new("unrouted", id=X, type="late.type"))
    with box.connection() as other:
        box.publish_on(other, new("pending", id=X))
        thread = threading.Thread(target=lambda: box.subscribe(QUEUE, "late.*"))
        thread.start()
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        with psycopg.connect(box.dsn, autocommit=True) as look:
            while look.execute(waits).fetchone() == (0,):
                pass
        other.commit()
        thread.join()
    assert late(box) == [(QUEUE, '"unrouted"', 12)]
    assert [m.body for m in box.messages()] == ['"pending"']


@pytest.mark.covers("X61")
def test_what_a_handler_emits_with_a_taken_id_is_refused_in_our_words(box: Box) -> None:
    box.publish(new("pending", id=X, queue="other"))
    box.send("work")
    leased = box.claim_one()
    with pytest.raises(IdTaken, match="pending in queue other"):
        box.settle(done(leased, own("emitted", queue="other")))
    assert [m.body for m in box.messages()] == ['"pending"', '"work"']
    box.settle(done(leased, own("emitted", queue="free")))
    assert [m.body for m in box.messages()] == ['"pending"', '"emitted"']


def test_a_message_may_leave_its_id_to_what_it_emits(box: Box) -> None:
    box.publish(own("first"))
    box.settle(done(box.claim_one(), own("second")))
    assert names(box.claim()) == ["second"]


def test_a_number_that_a_file_brought_is_not_used_again(box: Box) -> None:
    """Of all statements only an import stores a dead letter under a number of another database."""
    box.publish(new("first", id=X))
    leased = box.claim_one()
    box.settle(dead(leased))
    box.query("update {dead} set body = '\"of a file\"', seq = seq + 1")
    box.query("update {death} set seq = seq + 1")
    box.pass_time(seconds=1)
    box.publish(new("second", id=X))
    box.settle(dead(box.claim_one()))
    assert [(d.seq, d.body) for d in box.read("dead")] == [
        (leased.message.seq + 1, '"of a file"'),
        (leased.message.seq + 2, '"second"'),
    ]


@pytest.mark.covers("X62")
def test_an_error_history_that_is_none_stops_nobody(tmp_path: Path) -> None:
    """SQLite keeps any text there, and every exchange failed with "malformed JSON"."""
    box = sqlite_box(tmp_path / "holdfast.db")
    box.publish(new("odd", id=X, type="odd", stream="s"))
    box.query("update holdfast_message set errors = 'none'")
    box.publish(new("pending", id=X, queue=QUEUE))
    box.subscribe(QUEUE, "odd")
    assert names(box.turn().work) == ["pending"]
    assert [(d.body, d.reason) for d in box.read("dead")] == [('"odd"', 12)]
    box.store.close()


def test_sqlite_looks_for_given_ids_by_index(box: Box) -> None:
    """Joined with the view of all that is pending it read every message, for each one that was published."""
    if not box.sqlite:
        return
    names = ("ids", "types", "queues", "keys", "ending")
    with closing(sqlite3.connect(box.store.path)) as connection:
        text = load("sqlite", ("given/ids_taken",))
        rows = connection.execute(
            f"explain query plan {text}", {"now": 0, **dict.fromkeys(names, "[]")}
        ).fetchall()
    plan = " ".join(row[3] for row in rows)
    assert "holdfast_message_id" in plan, plan
    assert "holdfast_scheduled_id" in plan, plan
