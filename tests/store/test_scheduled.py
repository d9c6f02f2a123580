"""What is due in more than a minute, or enters a stream later, waits beside `message` and is brought over in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import IdTaken, NotFound, Refused
from holdfast.model.message import NewMessage
from holdfast.rules.rhythm import Portion
from holdfast.schedules.bringing import Bringer
from holdfast.store.plans import counting, keys, moving, operator, queries, queues, scheduled, sequences
from holdfast.store.recognise import recognise
from tests.store import state
from tests.store.box import QUEUE, TYPE, Box, done, names, new

X = UUID(int=1)
TIMER = "holdfast/timer"


def waiting(box: Box) -> list[str]:
    return [row.body.strip('"') for row in box.read("scheduled")]


def stored(box: Box) -> list[str]:
    return [row.body.strip('"') for row in box.read("message")]


# --- Where a message is stored ----------------------------------------------------------------------------------------


def by_call(box: Box, *messages: NewMessage) -> None:
    box.publish(*messages)


def by_deferred_call(box: Box, *messages: NewMessage) -> None:
    box.publish_deferred(*messages)


def on_a_handle(box: Box, *messages: NewMessage) -> None:
    with box.connection() as db:
        box.publish_on(db, *messages)
        db.commit()


def by_a_handler(box: Box, *messages: NewMessage) -> None:
    box.send("work")
    box.settle(done(box.claim_one(), *messages))


@pytest.mark.covers("W26", "B7")
@pytest.mark.parametrize("way", [by_call, by_deferred_call, on_a_handle, by_a_handler])
def test_what_is_due_later_waits_beside_the_messages(box: Box, way: Any) -> None:
    way(
        box,
        new("now"),
        new("soon", delay=60.0),
        new("later", delay=60.001),
        new("in a stream soon", delay=0.001, stream="s"),
        new("in a stream now", stream="s", due_at=box.now),
    )
    assert stored(box) == ["now", "soon", "in a stream now"]
    assert waiting(box) == ["later", "in a stream soon"]
    assert [row.queue for row in box.read("scheduled")] == [QUEUE, TIMER]
    box.pass_time(seconds=61)
    assert sorted(names(box.claim())) == ["in a stream now", "in a stream soon", "later", "now", "soon"]
    assert waiting(box) == []
    state.check_invariants(box.store)


def test_what_is_rolled_back_is_not_scheduled(box: Box) -> None:
    with box.connection() as db:
        box.publish_on(db, new("later", delay=3600.0))
        db.rollback()
    assert waiting(box) == []


@pytest.mark.covers("W26")
def test_each_subscriber_gets_one(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    box.send("later", delay=3600.0)
    assert sorted(row.queue for row in box.read("scheduled")) == ["ledger", QUEUE]
    box.subscribe("too late", "order.*")  # without a stream its subscribers are those of the publish
    box.pass_time(hours=1)
    assert box.claim("too late") == []
    assert [names(box.claim(queue)) for queue in ("ledger", QUEUE)] == [["later"], ["later"]]


def test_what_nobody_subscribes_to_goes_to_who_does_when_it_is_due(empty_box: Box) -> None:
    box = empty_box
    box.send("later", delay=3600.0)
    assert [row.queue for row in box.read("scheduled")] == [TIMER]
    box.subscribe()
    box.pass_time(hours=1)
    assert names(box.claim()) == ["later"]
    box.send("for nobody", type="unknown", delay=3600.0)
    box.pass_time(hours=1)
    box.bring()
    (kept,) = [row for row in box.read("message") if row.queue is None]
    assert kept.body == '"for nobody"'


@pytest.mark.covers("X62")
def test_a_plain_insert_is_scheduled_too(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    real = datetime.now(UTC).replace(microsecond=0)
    due = real + timedelta(hours=1)
    columns, values = "type, body, stream, due_at, queue", ":type, :body, :stream, :due, :queue"
    text = f"insert into {{message}} ({columns}) values ({values}) returning id"
    for body, stream, type_, queue in (
        ("plain", None, TYPE, None),
        ("in a stream", "s", TYPE, "ledger"),
        ("for one", None, TYPE, "ledger"),
        ("for nobody", None, "unknown", None),
    ):
        at = int(due.timestamp()) * 1_000_000 if box.sqlite else due
        answered = box.query(text, type=type_, body=f'"{body}"', stream=stream, due=at, queue=queue)
        assert len(answered) == 1  # as for any other
    assert sorted((row.body.strip('"'), row.queue, row.target) for row in box.read("scheduled")) == [
        ("for nobody", TIMER, None),
        ("for one", "ledger", None),
        ("in a stream", TIMER, "ledger"),
        ("plain", "ledger", None),
        ("plain", QUEUE, None),
    ]
    assert stored(box) == []
    box.clock.instant = real + timedelta(hours=2)
    assert sorted(names(box.claim("ledger"))) == ["for one", "in a stream", "plain"]
    assert names(box.claim()) == ["plain"]
    state.check_invariants(box.store)


def test_numbers_are_those_of_messages(box: Box) -> None:
    box.send("first", delay=3600.0)
    box.send("second")
    box.send("third", delay=3600.0)
    numbers = [row.seq for row in box.messages()]
    assert len(set(numbers)) == 3
    assert [row.body for row in sorted(box.messages(), key=lambda row: row.seq)] == [
        '"first"',
        '"second"',
        '"third"',
    ]
    assert {each.name: each.stored for each in box.store.run(sequences.look())}["messages"] == max(numbers)
    assert {each.name: each.stored for each in box.store.run(sequences.look(quick=True))}["messages"] == max(
        numbers
    )


# --- Brought over -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("X19", "X45", "B8")
def test_the_oldest_are_brought_over_first(box: Box) -> None:
    for name, minutes in (("d", 40), ("b", 20), ("a", 10), ("c", 30)):
        box.send(name, delay=60.0 * minutes, stream="s" if name in "bc" else None)
    box.pass_time(minutes=60)
    assert box.bring(count=2) == 2
    assert sorted(stored(box)) == ["a", "b"]
    assert box.bring(count=1) == 1
    assert sorted(stored(box)) == ["a", "b", "c"]
    assert box.bring() == 1
    assert box.bring() == 0
    work = box.claim()
    assert names(work)[0] == "a"
    assert {each.message.due_at for each in work} == {
        box.now - timedelta(minutes=m) for m in (20, 30, 40, 50)
    }


@pytest.mark.covers("X45")
def test_it_keeps_its_time_and_comes_before_what_fell_due_after_it(box: Box) -> None:
    sent = box.now
    box.send("due first", delay=3600.0)
    box.pass_time(hours=2)
    box.send("published since")
    box.pass_time(hours=1)
    first, second = box.claim()
    assert names([first, second]) == ["due first", "published since"]
    assert (first.message.due_at, first.message.created_at) == (sent + timedelta(hours=1), sent)


@pytest.mark.covers("X62")
def test_so_many_bytes_at_once_and_one_that_is_larger_alone(box: Box) -> None:
    for n in range(4):
        box.send("x" * 600 + str(n), delay=100.0 + n)
    box.send("y" * 5000, delay=200.0)
    box.pass_time(seconds=300)
    assert box.bring(size=1000) == 2
    assert box.bring(size=1000) == 2
    assert box.bring(size=1000) == 1
    assert box.bring(size=1000) == 0


@pytest.mark.covers("X61")
def test_where_the_id_is_taken_it_becomes_a_dead_letter(box: Box) -> None:
    box.publish(new("later", id=X, delay=3600.0))
    box.publish(new("in a stream", id=X, delay=3600.0, stream="s", type="another", queue=QUEUE))
    box.publish(new("free", delay=3600.0))
    box.pass_time(hours=2)
    assert box.bring() == 3
    assert sorted(names(box.claim())) == ["free", "later"]
    (kept,) = box.read("dead")
    assert (kept.id, kept.queue, kept.body, kept.reason) == (X, QUEUE, '"in a stream"', 12)
    state.check_invariants(box.store)


@pytest.mark.covers("X61")
@pytest.mark.parametrize("stream", [None, "s"])
def test_an_id_that_is_scheduled_is_in_use(box: Box, stream: str | None) -> None:
    box.publish(new("first", id=X, delay=3600.0, stream=stream, id_is_given=True))
    for delay in (None, 7200.0):
        with pytest.raises(IdTaken, match="scheduled"):
            box.publish(new("second", id=X, delay=delay, id_is_given=True))
    assert waiting(box) == ["first"]


def test_two_workers_bring_over_different_ones(pg_box: Box) -> None:
    box = pg_box
    for n in range(4):
        box.send(n, delay=100.0 + n)
    box.pass_time(seconds=300)
    with box.connection() as db:
        first = recognise(db).run(box.store.bound(scheduled.bring(2, 10**6)))
        assert first.did == 2
        assert box.bring() == 2  # does not wait
        db.commit()
    assert sorted(stored(box)) == ["0", "1", "2", "3"]


# --- Commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [None, "s"])
def test_what_is_cancelled_never_comes(box: Box, stream: str | None) -> None:
    id = box.send("m", delay=3600.0, stream=stream, dedupe="k")
    box.store.run(moving.cancel(id))
    assert (waiting(box), stored(box)) == ([], [])
    box.pass_time(hours=2)
    assert box.claim() == []
    assert [row.outcome for row in box.read("history")] == ["cancelled"]
    assert [row.ended_at is not None for row in box.read("dedupe")] == [True]
    with pytest.raises(NotFound):
        box.store.run(moving.cancel(id))


@pytest.mark.parametrize("stream", [None, "s"])
def test_what_is_moved_is_put_where_it_belongs(box: Box, stream: str | None) -> None:
    id = box.send("m", delay=3600.0, stream=stream)
    box.store.run(moving.move(id, None, 30.0))
    assert (waiting(box), stored(box)) == (([], ["m"]) if stream is None else (["m"], []))
    box.store.run(moving.move(id, None, 7200.0))
    assert (waiting(box), stored(box)) == (["m"], [])
    box.pass_time(seconds=3601)
    assert box.claim() == []
    box.pass_time(seconds=3600)
    with pytest.raises(Refused, match="has fallen due"):
        box.store.run(moving.move(id, None, 60.0))
    assert names(box.claim()) == ["m"]
    state.check_invariants(box.store)


@pytest.mark.parametrize("stream", [None, "s"])
def test_parked_it_waits_until_it_is_retried(box: Box, stream: str | None) -> None:
    box.send("m", delay=3600.0, stream=stream)
    (row,) = box.read("scheduled")
    box.store.run(operator.park(row.seq))
    box.pass_time(hours=2)
    assert box.claim() == []
    assert [each["state"] for each in box.store.run(queries.find())] == ["parked"]
    box.store.run(operator.retry(row.seq, False))
    assert names(box.claim()) == ["m"]


@pytest.mark.parametrize("stream", [None, "s"])
def test_retried_many_at_once_it_is_due_now(box: Box, stream: str | None) -> None:
    box.send("m", delay=3600.0, stream=stream)
    (row,) = box.read("scheduled")
    assert box.store.run(operator.retry_heads([row.seq], False)) == {row.seq}
    assert names(box.claim()) == ["m"]


def test_a_queue_is_moved_with_what_is_scheduled_in_it(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.publish(new("both", id=X, delay=3600.0, queue="ledger"))
    box.publish(new("both", id=X, delay=3600.0, queue=QUEUE))
    box.send("later", delay=3600.0)
    box.send("now")
    before = box.store.run(queues.known(QUEUE, "ledger"))
    moved = box.store.run(queues.move(QUEUE, "ledger", 100, before, box.now))
    assert (moved.moved, moved.here) == (2, 1)
    assert sorted(waiting(box)) == ["both", "later"]
    assert {row.queue for row in box.messages()} == {"ledger"}
    box.pass_time(hours=2)
    assert sorted(names(box.claim("ledger"))) == ["both", "later", "now"]
    state.check_invariants(box.store)


def test_a_queue_is_emptied_with_what_is_scheduled_in_it(box: Box) -> None:
    for n in range(5):
        box.send(n, delay=3600.0)
    assert box.store.run(queries.queue_pending(QUEUE, 10)) == (5, 0)
    assert box.store.run(queues.empty(QUEUE, 3)) == 3
    assert box.store.run(queues.empty(QUEUE, 3)) == 2
    assert (waiting(box), stored(box)) == ([], [])


# --- Asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
def test_it_is_counted_by_queue_and_state(box: Box, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exact:
        monkeypatch.setattr(counting, "EXACT_ROWS", 0)
    box.send("ready")
    box.send("later", delay=3600.0)
    box.send("later, too", delay=3600.0)
    box.send("in a stream", delay=3600.0, stream="s")
    box.send("parked", delay=3600.0)
    box.store.run(operator.park(box.read("scheduled")[-1].seq))
    found = box.store.run(counting.counted(10))
    assert {(row["queue"], row["state"]): row["count"] for row in found.rows} == {
        (QUEUE, "ready"): 1,
        (QUEUE, "scheduled"): 2,
        (QUEUE, "parked"): 1,
        (TIMER, "scheduled"): 1,
    }
    monkeypatch.setattr(counting, "CAP", 1)
    assert (QUEUE, "scheduled") in box.store.run(counting.counted(10)).more


def test_it_is_found_by_subject_state_and_id(box: Box) -> None:
    id = box.send("later", delay=3600.0, subject="User/1")
    box.send("now", subject="User/2")
    for wanted in ({"subject": "User/1"}, {"states": ["scheduled"]}, {"subject": "User/1*"}):
        assert [row["id"] for row in box.store.run(queries.find(**wanted))] == [id]
    pending, dead, ended = box.store.run(queries.show(id))
    assert [(row["state"], row["queue"]) for row in pending] == [("scheduled", QUEUE)]
    assert (dead, ended) == ([], [])
    (found,) = box.store.run(queries.pending(id, None))
    assert found["queue"] == QUEUE


def test_its_body_is_sealed_again(box: Box) -> None:
    id = box.send("old", delay=3600.0)
    seen: list[UUID | str] = []

    def seal(of: UUID | str, type_: str, text: str) -> str:
        seen.append(of)
        return '"new"'

    marks = {"mark": "{sealed", "sealed": "{sealed"}
    bodies = keys.TABLES["scheduled"]
    done_ = box.store.run(keys.reseal(bodies, bodies.start, marks, True, 10, seal))
    assert (done_.changed, seen) == (1, [id])
    assert waiting(box) == ["new"]
    assert ("scheduled", None, 1) in box.store.run(keys.counts("{sealed"))


# --- The step of a worker ---------------------------------------------------------------------------------------------


def test_the_step_says_when_it_has_something_to_do(box: Box) -> None:
    step = Bringer(box.store, box.clock)
    assert (step().did, step().next_at) == (0, None)
    box.send("m", delay=3600.0)
    assert (step().did, step().next_at) == (0, box.now + timedelta(hours=1))
    box.pass_time(hours=1)
    ticked = step()
    assert (ticked.did, ticked.next_at, ticked.queues) == (1, box.now, (QUEUE,))
    assert (step().did, step().next_at) == (0, None)


def test_it_begins_where_it_ended_and_looks_from_the_beginning_now_and_then(box: Box) -> None:
    step = Bringer(box.store, box.clock)
    box.send("m", delay=3600.0)
    box.pass_time(hours=1)
    assert step().did == 1
    box.publish(new("of a transaction that committed late", due_at=box.now + timedelta(hours=1)))
    early = int((box.now - timedelta(hours=1)).timestamp()) * 1_000_000
    at = early if box.sqlite else box.now - timedelta(hours=1)
    box.query("update {scheduled} set claimable_at = :at", at=at)
    assert step().did == 0
    box.pass_time(seconds=5)
    assert step().did == 1


def test_after_the_clock_was_set_back_all_that_is_due_is_brought_over(box: Box) -> None:
    """It remembers how far it came, and that lies ahead now."""
    step = Bringer(box.store, box.clock)
    box.pass_time(days=2)
    box.send("before", delay=3600.0)
    box.pass_time(hours=1)
    assert step().did == 1
    box.pass_time(days=-2)
    step()  # looks from the beginning, as every few seconds
    box.send("behind", delay=3600.0)
    box.pass_time(hours=1)
    step()
    box.send("behind, too", delay=0.5, stream="s")
    box.pass_time(seconds=1)
    assert step().did == 1
    assert waiting(box) == []


def test_a_flood_is_brought_over_in_smaller_parts_when_turns_take_long(box: Box) -> None:
    """Messages of other queues wait for such a turn."""
    step = Bringer(box.store, box.clock)
    step.portion = Portion(240)
    box.publish(*[new(f"m{n}", due_at=box.now + timedelta(hours=1)) for n in range(640)])
    box.pass_time(hours=1)
    brought = []
    while did := step().did:
        brought.append(did)
        box.pass_time(seconds=0.3 if len(brought) > 2 else 0.001)
    assert brought == [100, 200, 240, 100]


def test_what_is_due_is_not_looked_for_while_parts_are_full(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look is a round trip of its own. The clock that is set back meanwhile ends that."""
    step, looks, first = Bringer(box.store, box.clock), list[object](), scheduled.first
    monkeypatch.setattr(scheduled, "first", lambda since: looks.append(since) or first(since))
    box.publish(*[new(f"m{n}", due_at=box.now + timedelta(hours=1)) for n in range(250)])
    box.pass_time(hours=1)
    assert [step().did, step().did, step().did, step().did] == [100, 150, 0, 0]
    assert len(looks) == 3
    box.publish(*[new(f"n{n}", due_at=box.now + timedelta(hours=1)) for n in range(1000)])
    box.pass_time(hours=1)
    assert [step().did, step().did] == [200, 400]
    box.pass_time(minutes=-30)
    assert step().did == 0


def test_timers_of_an_older_release_are_brought_over_too(box: Box) -> None:
    """It stored them in `message`, in a queue that exchanges looked at."""
    box.send("timer", delay=3600.0, stream="s")
    (row,) = box.read("scheduled")
    box.store.run(scheduled.recall([row.seq]))
    assert [m.queue for m in box.read("message")] == [TIMER]
    step = Bringer(box.store, box.clock)
    step()
    assert (waiting(box), stored(box)) == (["timer"], [])
    box.pass_time(hours=1)
    assert step().did == 1
    assert names(box.claim()) == ["timer"]
