"""Dedupe keys: decided at the call, before the fan-out; held as long as the message is somewhere, and after."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.store.box import QUEUE, Box, cancelled, dead, done, failed, names, new

pytestmark = pytest.mark.covers("X43")


def again(box: Box, key: str = "k", **fields: object) -> tuple[object, bool]:
    (published,) = box.publish(new("again", dedupe=key, **fields))
    return published


def test_a_duplicate_stores_nothing_and_answers_the_first(box: Box) -> None:
    first = box.send("a", dedupe="k")
    assert again(box) == (first, True)
    assert names(box.claim()) == ["a"]


def test_the_scope_of_a_key_is_the_type(box: Box) -> None:
    box.subscribe(QUEUE, "other")
    box.send("a", dedupe="k")
    assert not again(box, type="other")[1]
    assert not again(box, "l")[1]
    assert len(box.claim()) == 3


def test_without_a_key_nothing_is_a_duplicate(box: Box) -> None:
    box.send("a", dedupe="k")
    box.send_all("b", "c")
    assert names(box.claim()) == ["a", "b", "c"]


def test_a_key_given_twice_in_one_call_belongs_to_the_first(box: Box) -> None:
    a, b, c, d = new("a", dedupe="k"), new("b", dedupe="l"), new("c", dedupe="k"), new("d")
    assert box.publish(a, b, c, d) == [(a.id, False), (b.id, False), (a.id, True), (d.id, False)]
    assert names(box.claim()) == ["a", "b", "d"]


def test_a_duplicate_among_others_takes_nothing_from_them(box: Box) -> None:
    first = box.send("first", dedupe="k")
    a, b, c = new("a", stream="s"), new("b", dedupe="k", stream="s"), new("c", stream="s")
    assert box.publish(a, b, c) == [(a.id, False), (first, True), (c.id, False)]
    assert names(box.claim(run=5)) == ["first", "a", "c"]
    assert box.stream("s").open == 2


@pytest.mark.covers("X42")
def test_it_is_decided_before_the_fan_out(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    first = box.send("a", dedupe="k")
    assert again(box) == (first, True)
    assert sorted(m.queue for m in box.messages()) == ["ledger", QUEUE]


def test_held_while_unrouted(empty_box: Box) -> None:
    first = empty_box.send("a", dedupe="k")
    assert again(empty_box) == (first, True)
    empty_box.subscribe()
    assert again(empty_box) == (first, True)


def test_held_while_pending_failed_parked_and_leased(box: Box) -> None:
    first = box.send("a", dedupe="k")
    leased = box.claim_one()
    assert again(box) == (first, True)
    box.settle(failed(leased))
    assert again(box) == (first, True)
    box.park(first)
    assert again(box) == (first, True)
    (key,) = box.read("dedupe")
    assert key.ended_at is None


def test_held_while_dead(box: Box) -> None:
    first = box.send("a", dedupe="k")
    box.settle(dead(box.claim_one()))
    assert again(box) == (first, True)
    (key,) = box.read("dedupe")
    assert key.ended_at is None


@pytest.mark.parametrize("end", [done, cancelled])
def test_held_after_the_end_and_the_end_is_written_down(box: Box, end: object) -> None:
    first = box.send("a", dedupe="k", stream="s")
    box.send("other", dedupe="other")
    leased = next(each for each in box.claim() if each.message.id == first)
    box.pass_time(seconds=5)
    box.settle(end(leased))  # type: ignore[operator]
    assert again(box) == (first, True)
    assert {key.key: key.ended_at for key in box.read("dedupe")} == {"k": box.now, "other": None}


def test_a_freed_key_may_be_used_again(box: Box) -> None:
    box.send("a", dedupe="k")
    box.settle(done(box.claim_one()))
    box.query("delete from {dedupe}")
    assert not again(box)[1]


def test_the_same_message_again_is_a_duplicate_too(box: Box) -> None:
    """A sender that does not know whether its commit arrived sends the same message, id and all, once more."""
    message = new("a", dedupe="k", stream="s")
    assert box.publish(message) == [(message.id, False)]
    assert box.publish(message) == [(message.id, True)]
    box.settle(done(box.claim_one()))
    assert box.publish(message, message) == [(message.id, True)] * 2
    assert box.messages() == []


def test_the_same_message_twice_in_one_call_is_stored_once(box: Box) -> None:
    message = new("a", dedupe="k")
    assert box.publish(message, message) == [(message.id, False), (message.id, True)]
    assert names(box.claim()) == ["a"]


def test_emitted_messages_are_deduplicated_too(box: Box) -> None:
    first = box.send("first", dedupe="k")
    box.send_all("a", "b")
    work = box.claim()
    emits = [new("x", dedupe="k"), new("y", dedupe="l"), new("z", dedupe="l"), new("w")]
    box.settle(*(done(each, *emits[n - 1 : n + 1 + n]) for n, each in enumerate(work) if n > 0))
    assert sorted(names(box.claim())) == ["w", "y"]
    assert first in {m.id for m in box.messages()}


def test_an_emitted_message_that_was_emitted_before_is_dropped(box: Box) -> None:
    """The retry of an attempt whose first settlement was lost emits the same message again."""
    emitted = new("x", dedupe="k", id=uuid4())
    box.send("a")
    box.settle(done(box.claim_one(), emitted))
    box.settle(done(box.claim_one()))
    box.send("b")
    box.settle(done(box.claim_one(), emitted))
    assert box.messages() == []
