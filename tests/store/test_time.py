"""Due is when the time has come, not before; what is scheduled into a stream enters it only then."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.box import QUEUE, Box, done, names, new

MICROSECOND = timedelta(microseconds=1)


@pytest.mark.covers("W23", "C8")
def test_without_a_time_it_is_claimable_at_once(box: Box) -> None:
    id = box.send("m")
    assert box.message(id).due_at is None
    assert names(box.claim()) == ["m"]


@pytest.mark.covers("W26", "W27", "B7", "B11", "C8")
@pytest.mark.parametrize("stream", [None, "s"])
@pytest.mark.parametrize("how", ["at", "delay"])
def test_it_is_claimable_from_its_time_on_and_not_before(box: Box, stream: str | None, how: str) -> None:
    due = box.now + timedelta(minutes=5)
    id = box.send("m", stream=stream, **({"due_at": due} if how == "at" else {"delay": 300.0}))
    assert box.claim() == []
    box.clock.instant = due - MICROSECOND
    assert box.claim() == []
    box.clock.instant = due
    leased = box.claim_one()
    assert (leased.message.id, leased.message.due_at) == (id, due)


@pytest.mark.covers("B8", "B5")
@pytest.mark.parametrize("late", [{"minutes": 1}, {"hours": 24}, {"days": 400}])
@pytest.mark.parametrize("stream", [None, "s"])
def test_it_is_claimable_however_late_it_is(box: Box, stream: str | None, late: dict[str, float]) -> None:
    box.send("m", stream=stream, delay=60.0)
    box.pass_time(minutes=1)
    box.pass_time(**late)
    assert names(box.claim()) == ["m"]


def test_a_time_in_the_past_means_now(box: Box) -> None:
    yesterday = box.now - timedelta(days=1)
    box.send("m", due_at=yesterday, stream="s")
    leased = box.claim_one()
    assert leased.message.due_at == yesterday


@pytest.mark.covers("X19", "X45")
def test_the_one_due_first_comes_first(box: Box) -> None:
    for name, minutes in [("c", 30), ("a", 0), ("d", 90), ("b", 15)]:
        box.send(name, delay=60.0 * minutes)
    box.pass_time(hours=1)
    assert names(box.claim()) == ["a", "b", "c"]


# --- Scheduled into a stream ------------------------------------------------------------------------------------------


def test_it_never_blocks_its_stream(box: Box) -> None:
    box.send("later", stream="s", delay=60.0)
    box.send("now", stream="s")
    assert box.stream("s").open == 1
    leased = box.claim_one()
    assert names([leased]) == ["now"]
    box.settle(done(leased))
    assert box.stream("s").open == 0


def test_its_place_is_that_of_the_moment_when_it_fires(box: Box) -> None:
    id = box.send("timer", stream="s", delay=60.0)
    box.send("before", stream="s")
    box.pass_time(seconds=60)
    work = box.claim(run=1)
    box.send("after", stream="s")
    assert names(work) == ["before"]
    box.settle(*map(done, work))
    work = box.claim()
    assert names(work) == ["timer", "after"]
    assert work[0].message.id == id


def test_timers_fire_in_the_order_of_their_times(box: Box) -> None:
    for name, delay in [("c", 30.0), ("a", 10.0), ("b", 20.0), ("d", 30.0)]:
        box.send(name, stream="s", delay=delay)
    box.pass_time(minutes=1)
    assert names(box.claim()) == ["a", "b", "c", "d"]


@pytest.mark.covers("X42")
def test_its_subscribers_are_those_of_the_moment_when_it_fires(box: Box) -> None:
    id = box.send("timer", stream="s", delay=60.0)
    box.subscribe("ledger", "order.*")
    box.pass_time(seconds=60)
    assert [leased.message.id for leased in box.claim("ledger")] == [id]
    assert [leased.message.id for leased in box.claim(QUEUE)] == [id]


def test_with_a_queue_it_goes_there_alone(box: Box) -> None:
    box.subscribe("ledger", "order.*")
    box.send("timer", stream="s", delay=60.0, queue="ledger")
    box.pass_time(seconds=60)
    assert names(box.claim("ledger", QUEUE)) == ["timer"]
    assert [m.queue for m in box.messages()] == ["ledger"]


@pytest.mark.covers("X42")
def test_fired_without_a_subscriber_it_is_kept(empty_box: Box) -> None:
    box = empty_box
    id = box.send("timer", stream="s", delay=60.0)
    box.pass_time(seconds=60)
    assert box.claim("any") == []
    (kept,) = box.messages()
    assert (kept.id, kept.queue) == (id, None)
    box.subscribe()
    assert names(box.claim()) == ["timer"]


def test_everything_about_it_survives_the_firing(box: Box) -> None:
    given = new(
        "timer",
        stream="s",
        delay=60.0,
        subject="x",
        headers='{"h":1}',
        dedupe="k",
        deadline=box.now,
        event=True,
    )
    box.publish(given)
    due = box.now + timedelta(seconds=60)
    box.pass_time(seconds=90)
    message = box.claim_one().message
    assert (message.id, message.type, message.body, message.stream) == (given.id, given.type, given.body, "s")
    assert (message.subject, message.headers, message.status) == ("x", '{"h":1}', 3)
    assert (message.due_at, message.deadline) == (due, given.deadline)
    assert box.message(given.id).dedupe == "k"


@pytest.mark.covers("X43")
def test_a_timer_holds_its_dedupe_key(box: Box) -> None:
    first = box.send("timer", stream="s", delay=60.0, dedupe="k")
    assert box.publish(new("again", dedupe="k")) == [(first, True)]
    box.pass_time(seconds=60)
    assert names(box.claim()) == ["timer"]
    assert box.publish(new("again", dedupe="k")) == [(first, True)]


def test_more_timers_than_one_turn_fires(box: Box) -> None:
    box.publish(*(new(n, stream=f"s{n % 9}", delay=60.0) for n in range(1100)))
    box.pass_time(seconds=60)
    handled: list[int] = []
    while work := box.claim(heads=1000, total=2000, run=100):
        handled += names(work)
        box.settle(*map(done, work))
    assert sorted(handled) == list(range(1100))


def test_timers_fire_although_their_queue_is_paused(box: Box) -> None:
    """A pause stops claiming, nothing else: the place in the stream is that of its time."""
    box.send("timer", stream="s", delay=60.0)
    box.pause()
    box.pass_time(seconds=60)
    assert box.claim() == []
    box.send("after", stream="s")
    box.resume()
    assert names(box.claim()) == ["timer", "after"]


# --- When the next thing falls due ------------------------------------------------------------------------------------


def test_a_peek_tells_when_the_next_thing_falls_due(box: Box) -> None:
    assert box.turn(peek=True).next_due is None
    box.send("b", delay=20.0)
    assert box.turn(peek=True).next_due == box.now + timedelta(seconds=20)
    box.pass_time(seconds=10)
    assert box.turn(peek=True).next_due == box.now + timedelta(seconds=10)
    assert box.turn(peek=False).next_due is None


def test_a_parked_message_never_falls_due(box: Box) -> None:
    """Found on PostgreSQL: infinity is an instant that Python does not have."""
    id = box.send("m")
    box.park(id)
    batch = box.turn(peek=True)
    assert (batch.work, batch.next_due) == ([], None)
    box.send("n", delay=60.0)
    assert box.turn(peek=True).next_due == box.now + timedelta(seconds=60)


def test_a_paused_queue_wakes_nobody(box: Box) -> None:
    box.subscribe("ledger", "other")
    box.send("a", delay=10.0)
    box.send("b", delay=20.0, type="other")
    box.pause(QUEUE)
    batch = box.turn(peek=True, queues=(QUEUE, "ledger"))
    assert batch.next_due == box.now + timedelta(seconds=20)


def test_a_peek_looks_at_the_queues_wanted_only(box: Box) -> None:
    box.send("a", delay=10.0)
    assert box.turn(peek=True, queues=("other",)).next_due is None
