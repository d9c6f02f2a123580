"""Dedupe keys: decided at the call, before the fan-out; held as long as the message is somewhere, and after."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from holdfast import Dedupe, InvalidMessage, Settings
from holdfast.bodies.drafts import draft
from holdfast.model.message import NewMessage, Reason, Stillborn
from holdfast.model.names import SCOPED, shown_key, stored_key
from holdfast.store.plans import dead as dead_letters
from holdfast.store.plans import queues
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


# --- A scope and a window of its own ----------------------------------------------------------------------------------


def foreign(source: str, key: str, type: str = "order.placed", window: float | None = None) -> NewMessage:
    """A message of another system, as an inbox stores it."""
    return draft(Settings(), type, {}, dedupe=Dedupe(key, scope=source, window=window), stream="s")


def test_a_key_with_a_scope_counts_there_whatever_the_type(box: Box) -> None:
    box.subscribe(QUEUE, "other")
    a, b = foreign("/a", "1"), foreign("/b", "1")
    assert box.publish(a, b, foreign("/a", "1")) == [(a.id, False), (b.id, False), (a.id, True)]
    assert box.publish(foreign("/a", "1", type="other")) == [(a.id, True)]
    assert not again(box, "1")[1], "a plain key has its type for a scope"
    box.settle(*map(done, box.claim(run=9)))
    assert box.publish(foreign("/a", "1")) == [(a.id, True)]
    assert {key.key: key.ended_at for key in box.read("dedupe")} == {
        stored_key("1", "/a"): box.now, stored_key("1", "/b"): box.now, "1": box.now
    }  # fmt: skip


def test_a_key_with_a_scope_given_twice_in_one_call_belongs_to_the_first(box: Box) -> None:
    a, b = foreign("/a", "1"), foreign("/a", "1", type="other")
    assert box.publish(a, b) == [(a.id, False), (a.id, True)]


@pytest.mark.parametrize("window", [None, 300.0, 14 * 86_400.0])
def test_each_key_is_held_for_its_own_window(box: Box, window: float | None) -> None:
    message = foreign("/a", "1", window=window)
    box.publish(message, foreign("/a", "2", window=1000.0), foreign("/a", "3", window=20 * 86_400.0))
    box.settle(*map(done, box.claim(run=9)))
    lasts = 7 * 86_400.0 if window is None else window
    box.pass_time(seconds=lasts - 1)
    box.store.run(queues.prune("dedupe", 7 * 86_400.0, 100))
    assert box.publish(foreign("/a", "1"))[0] == (message.id, True)
    box.pass_time(seconds=2)
    assert box.store.run(queues.prune("dedupe", 7 * 86_400.0, 100)).count >= 1
    assert not box.publish(foreign("/a", "1"))[0].duplicate
    assert box.publish(foreign("/a", "3"))[0].duplicate


def test_a_window_ends_only_when_the_message_is_nowhere(box: Box) -> None:
    box.publish(foreign("/a", "1", window=300.0))
    box.settle(dead(box.claim_one()))
    box.pass_time(seconds=10_000)
    box.store.run(queues.prune("dedupe", 1.0, 100))
    assert box.publish(foreign("/a", "1"))[0].duplicate


@pytest.mark.parametrize("window", [0, 299.9, timedelta(seconds=299), -1, float("nan"), float("inf")])
def test_a_window_below_the_floor_is_refused(window: float | timedelta) -> None:
    with pytest.raises(InvalidMessage, match="300 seconds"):
        draft(Settings(), "t", dedupe=Dedupe("k", window=window), body=None)


def test_no_key_of_a_user_looks_like_one_with_a_scope() -> None:
    with pytest.raises(InvalidMessage, match="control character"):
        draft(Settings(), "t", None, dedupe=f"{SCOPED}a{SCOPED}b")
    with pytest.raises(InvalidMessage, match="control character"):
        draft(Settings(), "t", None, dedupe=Dedupe("k", scope=f"a{SCOPED}"))
    assert shown_key(stored_key("1", "/a")) == "1 (of /a)"
    assert stored_key("1", "/a b") != stored_key("b 1", "/a")


# --- Dead letters from the start --------------------------------------------------------------------------------------


def stillborn(key: str = "1", id: UUID | None = None, kept: int | None = None) -> Stillborn:
    return Stillborn(
        id or uuid4(), "inbox/a", "unreadable", '{"data_base64":"AP8="}', stored_key(key, "/a"),
        Reason.SERIALIZATION_ERROR, "it is not JSON", "print", "subject", '{"h":1}', kept,
    )  # fmt: skip


def test_a_dead_letter_from_the_start_is_stored_once_with_its_error(box: Box) -> None:
    letter = stillborn(kept=600)
    assert box.store.run(dead_letters.bear([letter, stillborn()])) == {letter.id: box.now}
    assert box.store.run(dead_letters.bear([letter])) == {}
    (row,) = box.read("dead")
    assert (row.id, row.queue, row.reason, row.died_at, row.body) == (
        letter.id,
        "inbox/a",
        5,
        box.now,
        letter.body,
    )
    assert (row.attempts, row.status, row.subject, row.headers) == (0, 32769, "subject", '{"h":1}')
    (death,) = box.read("death")
    assert (death.id, death.error, death.reason) == (letter.id, "it is not JSON", 5)
    assert box.publish(foreign("/a", "1")) == [(letter.id, True)]


def test_a_dead_letter_from_the_start_comes_back_and_may_die_again(box: Box) -> None:
    letter = stillborn()
    box.store.run(dead_letters.bear([letter]))
    assert box.store.run(dead_letters.redrive([(letter.id, "inbox/a", 0)], out=False)) == [
        (letter.id, "inbox/a", 0)
    ]
    assert box.store.run(dead_letters.bear([letter])) == {}, "its key is held while it is pending"
    leased = box.claim_one("inbox/a")
    assert leased.message.body == letter.body
    box.settle(dead(leased))
    assert len(box.read("dead")) == 1
    assert len(box.read("death")) == 2


def test_one_whose_key_a_message_has_is_left_out(box: Box) -> None:
    message = foreign("/a", "1")
    box.publish(message)
    assert box.store.run(dead_letters.bear([stillborn(), stillborn("2")])).keys() != set()
    assert [row.dedupe for row in box.read("dead")] == [stored_key("2", "/a")]
