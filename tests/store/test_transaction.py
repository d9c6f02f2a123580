"""Publishing in the caller's own transaction: both are stored, or neither. Every kind of handle is tried in
tests/handles; here it is the real tables, and what becomes of the order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from holdfast.store.plans import dead as dead_letters
from holdfast.store.plans import engine
from holdfast.store.recognise import recognise
from tests.store.box import QUEUE, Box, dead, done, names, new
from tests.store.state import check_invariants


@pytest.fixture
def db(box: Box) -> Iterator[Any]:
    """The user's connection, with a table of the user's own."""
    with box.connection() as db:
        db.execute(
            "create table if not exists public.orders (id int)"
            if not box.sqlite
            else "create table orders (id int)"
        )
        db.execute("delete from orders")
        db.commit()
        yield db


def orders(box: Box) -> list[int]:
    return [id for (id,) in box.query("select id from orders order by id")]


@pytest.mark.covers("W105", "V1")
def test_both_are_committed(box: Box, db: Any) -> None:
    db.execute("insert into orders values (1)")
    box.publish_on(db, new("placed", stream="s"))
    db.execute("insert into orders values (2)")
    if not box.sqlite:  # SQLite's readers do not see it either, but its one writer is busy with it
        assert (orders(box), box.claim()) == ([], [])
    db.commit()
    assert orders(box) == [1, 2]
    assert names(box.claim()) == ["placed"]


@pytest.mark.covers("W105", "V1")
def test_neither_is_left_after_a_rollback(box: Box, db: Any) -> None:
    db.execute("insert into orders values (1)")
    box.publish_on(db, new("a", stream="s", dedupe="k"), new("b"))
    db.rollback()
    assert orders(box) == []
    assert (box.messages(), box.read("stream"), box.read("dedupe")) == ([], [], [])


@pytest.mark.covers("W105")
def test_a_savepoint_takes_back_only_what_is_inside(box: Box, db: Any) -> None:
    db.execute("insert into orders values (1)")
    box.publish_on(db, new("kept", stream="s"))
    db.execute("savepoint inner_one")
    db.execute("insert into orders values (2)")
    box.publish_on(db, new("gone", stream="s", dedupe="k"), new("gone too", stream="t"))
    db.execute("rollback to savepoint inner_one")
    box.publish_on(db, new("kept too", stream="s"))
    db.commit()
    assert orders(box) == [1]
    assert names(box.claim()) == ["kept", "kept too"]
    assert box.read("dedupe") == []


def test_what_a_kept_savepoint_published_has_its_place(box: Box, db: Any) -> None:
    box.publish_on(db, new("a", stream="s"))
    db.execute("savepoint inner_one")
    box.publish_on(db, new("b", stream="s"))
    db.execute("release savepoint inner_one")
    box.publish_on(db, new("c", stream="s"))
    db.commit()
    assert names(box.claim()) == ["a", "b", "c"]


@pytest.mark.covers("W36")
def test_many_calls_in_one_transaction_keep_their_order(box: Box, db: Any) -> None:
    box.send("first", stream="s")
    for n in range(20):
        box.publish_on(db, new(n, stream="s" if n % 2 else "t"))
    db.commit()
    work = box.claim()
    assert [n for n in names(work) if n == "first" or n % 2] == ["first", *range(1, 20, 2)]
    assert [n for n in names(work) if n != "first" and n % 2 == 0] == list(range(0, 20, 2))


@pytest.mark.covers("X43")
def test_a_duplicate_is_known_at_the_call(box: Box, db: Any) -> None:
    first = box.send("a", dedupe="k")
    db.execute("insert into orders values (1)")
    (published,) = box.publish_on(db, new("b", dedupe="k"))
    assert published == (first, True)
    db.commit()
    assert (orders(box), names(box.claim())) == ([1], ["a"])


@pytest.mark.covers("X36")
def test_a_settlement_in_the_users_transaction_is_applied_with_the_users_writes(box: Box, db: Any) -> None:
    box.send("a", stream="s")
    leased = box.claim_one()
    for end in (db.rollback, db.commit):
        db.execute("insert into orders values (7)")
        held = recognise(db).run(box.store.bound(engine.settle([done(leased, new("next", stream="s"))], [])))
        assert held == {leased.message.seq}
        end()
        if end == db.rollback:
            assert (orders(box), len(box.messages()), len(box.read("lease"))) == ([], 1, 1)
    assert orders(box) == [7]
    assert names(box.claim()) == ["next"]


@pytest.mark.covers("X36")
def test_a_lost_lease_is_seen_before_the_users_transaction_commits(box: Box, db: Any) -> None:
    box.send("a")
    leased = box.claim_one()
    box.pass_time(minutes=1)
    box.recover()
    db.execute("insert into orders values (7)")
    held = recognise(db).run(box.store.bound(engine.settle([done(leased)], [])))
    assert held == set()
    db.rollback()
    assert len(box.messages()) == 1


def test_a_transaction_that_publishes_before_and_after_it_settles_keeps_the_order(box: Box, db: Any) -> None:
    box.send_all("a", "b", stream="s")
    (a,) = box.claim(run=1)
    box.publish_on(db, new("c", stream="s"), new("x", stream="t"))
    settled = done(a, new("d", stream="s"), new("y", stream="t"))
    assert recognise(db).run(box.store.bound(engine.settle([settled], []))) == {a.message.seq}
    box.publish_on(db, new("e", stream="s"), new("z", stream="t"))
    db.commit()
    work = box.claim()
    assert [name for name in names(work) if name in "abcde"] == ["b", "c", "d", "e"]
    assert [name for name in names(work) if name in "xyz"] == ["x", "y", "z"]


def test_a_transaction_may_publish_into_the_stream_that_it_empties(box: Box, db: Any) -> None:
    box.send("a", stream="s")
    leased = box.claim_one()
    box.publish_on(db, new("b", stream="s"))
    recognise(db).run(box.store.bound(engine.settle([done(leased)], [])))
    db.commit()
    assert names(box.claim()) == ["b"]


def test_transactions_of_one_message_each_queue_up_in_the_order_of_commits(box: Box) -> None:
    for n in range(3):
        with box.connection() as db:
            box.publish_on(db, new(n, stream="s"))
            db.commit()
    check_invariants(box.store)
    assert [m.head for m in box.messages()] == [True, False, False]
    assert names(box.claim(run=1)) == [0]


STEPS = (
    "one",
    "one",
    "two",
    "plain",
    "unordered",
    "savepoint",
    "back",
    "release",
    "at once",
    "reset",
    "settle",
)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_transaction_does_its_messages_get_their_places(box: Box, seed: int) -> None:
    """Publishes of every kind among savepoints: what is left of them is placed once, in the order of the calls."""
    chance, marks = Random(seed), list[tuple[int, list[str]]]()
    sent: list[tuple[str, str]] = []  # stream, name
    for stream in "abc":
        with box.connection() as db:
            box.publish_on(db, new("first", stream=stream))
            db.commit()
    leased = {str(each.message.stream): each for each in box.claim()}
    running = sorted(leased)
    box.send("second", stream="a")
    table = "holdfast_message" if box.sqlite else "holdfast.message"
    with box.connection() as db:
        if box.sqlite:
            db.execute("begin immediate")
        for n in range(chance.randint(1, 9)):
            step, stream = chance.choice(STEPS), chance.choice("abc")
            match step:
                case "one" | "two":
                    bodies = [f"{n}.{each}" for each in range(1 if step == "one" else 2)]
                    box.publish_on(db, *(new(body, stream=stream) for body in bodies))
                    sent += [(stream, body) for body in bodies]
                case "plain":
                    values = f"('order.placed', '\"{n}\"', '{stream}')"
                    db.execute(f"insert into {table} (type, body, stream) values {values}")
                    sent.append((stream, str(n)))
                case "unordered":
                    box.publish_on(db, new("x"))
                case "settle" if running:
                    ended = [done(leased[running.pop()])]
                    assert recognise(db).run(box.store.bound(engine.settle(ended, [])))
                case "savepoint":
                    db.execute(f"savepoint s{len(marks)}")
                    marks.append((len(sent), list(running)))
                case "back" if marks:
                    db.execute(f"rollback to s{len(marks) - 1}")
                    del sent[marks[-1][0] :]
                    running[:] = marks[-1][1]
                case "release" if marks:
                    db.execute(f"release savepoint s{len(marks) - 1}")
                    marks.pop()
                case "at once" if not box.sqlite:
                    db.execute("set constraints all immediate")
                case "reset" if not box.sqlite:
                    db.execute("reset all")
        db.commit()
    check_invariants(box.store)
    for stream in "abc":
        order = sorted((m for m in box.messages() if m.stream == stream), key=lambda m: m.position)
        found = [json.loads(m.body) for m in order]
        before = (["first"] if stream in running else []) + (["second"] if stream == "a" else [])
        assert found == before + [name for where, name in sent if where == stream]


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_published_beside_a_settlement_is_placed_once(box: Box, count: int) -> None:
    """The settlement places what its transaction has published; the commit finds it done."""
    box.send("first", stream="s")
    leased = box.claim_one()
    with box.connection() as db:
        for n in range(count):
            box.publish_on(db, new(n, stream="s"))
        handle = recognise(db)
        assert handle.run(box.store.bound(engine.settle([done(leased)], [])))
        db.commit()
    check_invariants(box.store)
    assert names(box.claim()) == list(range(count))


@pytest.mark.parametrize("meanwhile", ["delete from {message}", "update {message} set stream = 't'"])
def test_a_message_that_its_own_transaction_has_changed_blocks_nobody(pg_box: Box, meanwhile: str) -> None:
    """Found in review: it was counted into a stream where nothing was."""
    box = pg_box
    with box.connection() as db:
        box.publish_on(db, new("a", stream="s"))
        db.execute(meanwhile.format(message="holdfast.message"))
        db.commit()
    gone = "delete" in meanwhile
    check_invariants(box.store)
    box.send("b", stream="s")
    assert names(box.claim(run=1)) == (["b"] if gone else ["a", "b"])


def test_who_joins_a_stream_is_written_once(pg_box: Box) -> None:
    """Its position was guessed; it is right as long as nobody else has come into the stream since."""
    box = pg_box
    box.send("first", stream="s")  # by our own transaction, which says nothing of guesses
    written = []
    for n in range(3):
        with box.connection() as db:
            box.publish_on(db, new(n, stream="s"))
            ((before,),) = db.execute("select max(ctid)::text from holdfast.message").fetchall()
            db.commit()
            ((after,),) = db.execute("select max(ctid)::text from holdfast.message").fetchall()
            written.append(1 if before == after else 2)
    assert written == [2, 1, 1]
    check_invariants(box.store)
    assert names(box.claim()) == ["first", 0, 1, 2]


def test_who_was_placed_at_once_is_not_placed_again(pg_box: Box) -> None:
    box = pg_box
    with box.connection() as db:
        box.publish_on(db, new("first", stream="s"))
        db.commit()
        box.publish_on(db, new("second", stream="s"))
        db.execute("set constraints all immediate")
        box.publish_on(db, new("third", stream="s"))
        db.commit()
    check_invariants(box.store)
    assert names(box.claim()) == ["first", "second", "third"]


BETWEEN = ("one", "two", "plain", "by itself", "emitted", "redriven")


@pytest.mark.parametrize("between", BETWEEN)
def test_a_guess_that_was_overtaken_does_not_hold(pg_box: Box, between: str) -> None:
    """Places follow the order of commits, however another message came into the stream meanwhile."""
    box = pg_box
    box.send("early", stream="s")
    letter = box.claim_one()
    box.settle(dead(letter))
    box.send("work")
    work = box.claim_one()
    with box.connection() as db, box.connection() as other:
        box.publish_on(other, new("first", stream="s"))
        other.commit()
        box.publish_on(db, new("late", stream="s"))
        early = new("early", stream="s")
        match between:
            case "one":
                box.publish_on(other, early)
            case "two":
                box.publish_on(other, early, new("elsewhere", stream="t"))
            case "plain":
                other.execute(
                    """insert into holdfast.message (type, body, stream) values ('order.placed', '"early"', 's')"""
                )
            case "by itself":
                box.publish(early)
            case "emitted":
                box.settle(done(work, early))
            case "redriven":
                keys = [(letter.message.id, QUEUE, letter.message.seq)]
                box.store.run(dead_letters.redrive(keys, False))
        other.commit()
        db.commit()
    check_invariants(box.store)
    order = sorted((m for m in box.messages() if m.stream == "s"), key=lambda m: m.position)
    assert [json.loads(m.body) for m in order] == ["first", "early", "late"]


@pytest.mark.parametrize("reset", [False, True])
def test_what_is_published_beside_a_settlement_does_not_overtake(pg_box: Box, reset: bool) -> None:
    """Its guess is lower than what has come meanwhile, and the settlement looks for the lowest."""
    box = pg_box
    box.send("first", stream="s")
    leased = box.claim_one()
    with box.connection() as db:
        box.publish_on(db, new("late", stream="s"))
        box.send("early", stream="s")
        if reset:
            db.execute("reset all")
        recognise(db).run(box.store.bound(engine.settle([done(leased)], [])))
        db.commit()
    check_invariants(box.store)
    assert names(box.claim()) == ["early", "late"]


@pytest.mark.parametrize("steps", ["reset other settle", "at_once reset settle"])
def test_settings_that_are_reset_strand_nobody(pg_box: Box, steps: str) -> None:
    """Found in review: who was counted already, and who was not, is known to the queue of the trigger alone."""
    box = pg_box
    with box.connection() as db:
        box.publish_on(db, new("first", stream="s"))
        db.commit()
    leased = box.claim_one()
    with box.connection() as db:
        box.publish_on(db, new("late", stream="s"))
        if "other" in steps:
            box.send("early", stream="s")
        for step in steps.split():
            match step:
                case "reset":
                    db.execute("reset all")
                case "at_once":
                    db.execute("set constraints all immediate")
                case "other":
                    box.publish_on(db, new("elsewhere", stream="t"))
                case "settle":
                    recognise(db).run(box.store.bound(engine.settle([done(leased)], [])))
        db.commit()
    check_invariants(box.store)
    box.send("last", stream="s")
    found = [name for name in names(box.claim()) if name != "elsewhere"]
    assert found == (["early", "late", "last"] if "other" in steps else ["late", "last"])


def test_positions_do_not_go_back_when_a_stream_was_forgotten(pg_box: Box) -> None:
    """Found in review: a fence compares them, whatever has become of the stream's row between."""
    box = pg_box
    with box.connection() as db:
        box.publish_on(db, new("late", stream="s"))
        with box.connection() as other:
            box.publish_on(other, new("early", stream="s"))
            other.commit()
        (early,) = (m.position for m in box.messages())
        box.settle(done(box.claim_one()))
        box.query("delete from {stream}")
        db.commit()
    check_invariants(box.store)
    position = box.claim_one().message.position
    assert position is not None
    assert position > early


def test_a_mark_that_came_with_a_backup_means_nothing(pg_box: Box) -> None:
    """Restored elsewhere, messages bear the numbers of transactions that are still to come there."""
    box = pg_box
    for name in ("first", "second", "third"):
        with box.connection() as db:
            box.publish_on(db, new(name, stream="s"))
            db.commit()
    leased, *_ = box.claim(run=1)
    with box.connection() as db:
        ((mine,),) = db.execute("select pg_current_xact_id()::text").fetchall()
        box.query(f"update {{message}} set xact = '{mine}'::xid8 where not head")
        recognise(db).run(box.store.bound(engine.settle([done(leased)], [])))
        box.publish_on(db, new("one", stream="s"))
        box.publish_on(db, new("two", stream="s"))
        db.commit()
    check_invariants(box.store)
    assert names(box.claim()) == ["second", "third", "one", "two"]


def test_settings_that_are_reset_do_not_place_a_message_twice(pg_box: Box) -> None:
    box = pg_box
    box.send("first", stream="s")
    leased = box.claim_one()
    with box.connection() as db:
        box.publish_on(db, new("a", stream="s"))
        recognise(db).run(box.store.bound(engine.settle([done(leased)], [])))
        db.execute("reset all")
        box.publish_on(db, new("b", stream="s"))
        db.commit()
    check_invariants(box.store)
    assert names(box.claim()) == ["a", "b"]
