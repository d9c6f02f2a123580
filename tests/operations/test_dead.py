"""The way back of dead letters, and their end."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from holdfast.errors import NotFound, UsageError
from holdfast.model.message import Flag, Reason
from holdfast.model.work import Outcome
from holdfast.operations import Filter
from holdfast.store.plans import engine
from tests.operations.world import NOON, World


def die_in_order(world: World, id: UUID, *, halt: bool = False) -> None:
    (leased,) = world.claim()
    assert leased.message.id == id
    world.die(leased, halt=halt)


# -- looking


@pytest.mark.covers("X46")
def test_list_filters_by_the_last_reason(world: World) -> None:
    for reason, last in ((7, 1), (7, 2), (3, 3)):
        world.publish(f"type.{last}", queue="q")
        world.die(world.claim()[0], reason=Reason(reason), last=Reason(last))
        world.clock.advance(seconds=1)
    listed = world.operations.dead.list
    assert [each.last_reason for each in listed()] == [3, 2, 1]
    assert [each.last_reason for each in listed(newest=False, limit=2)] == [1, 2]
    assert [each.reason for each in listed(Filter(reason=1))] == [7]
    assert listed(Filter(reason=7)) == []
    assert [each.type for each in listed(Filter(type="type.3", queue="q"))] == ["type.3"]
    with pytest.raises(UsageError, match="no state"):
        listed(Filter(state="ready"))


def test_show_has_the_whole_story(world: World) -> None:
    id = world.publish(stream="s", queue="q", body='{"secret": 1}', headers="{}", dedupe="k", subject="o/1")
    world.fail(world.claim()[0], 1.0, Reason.TRANSPORT_UNAVAILABLE, "no route")
    world.clock.advance(seconds=1)
    position = world.one(id).position
    world.die(world.claim()[0])
    ((letter, content),) = world.operations.dead.show(id)
    assert (letter.attempts, letter.failures, letter.worker, letter.position) == (2, 2, "w1", position)
    assert (content.body, content.headers, content.dedupe) == ('{"secret": 1}', "{}", "k")
    assert [each.text for each in content.errors] == ["no route", "the end"]
    with pytest.raises(NotFound, match="no dead letter"):
        world.operations.dead.show(uuid4())


# -- redrive


@pytest.mark.covers("X3", "X47")
def test_a_redriven_message_starts_anew_and_keeps_what_it_is(world: World) -> None:
    id = world.publish(queue="q", dedupe="k", subject="o/1", headers='{"a": 1}')
    (leased,) = world.claim()
    world.die(leased, flags=int(Flag.EVENT_STORED))
    ((before, _),) = world.operations.dead.show(id)
    world.clock.advance(seconds=10)
    assert world.claimed() == []
    (changed,) = world.operations.dead.redrive(id)
    assert (changed.id, changed.queue, changed.what) == (id, "q", "redriven")
    ((after, content),) = world.operations.messages.show(id).pending
    assert (after.attempts, after.failures, after.vanished, after.refunds, after.redrives) == (0, 0, 0, 0, 1)
    assert after.status == int(Flag.STORED | Flag.EVENT_STORED)
    assert after.epoch > before.epoch
    assert (after.subject, content.headers, content.dedupe, content.body) == (
        "o/1",
        '{"a": 1}',
        "k",
        '{"n": 1}',
    )
    assert [each.text for each in content.errors] == ["the end"]
    assert after.created_at == NOON
    assert world.published(queue="q", dedupe="k").duplicate
    assert world.operations.dead.list() == []
    (again,) = world.claim()
    assert (again.message.id, again.attempt) == (id, 1)


def test_a_zombie_from_before_the_death_comes_too_late_after_the_redrive(world: World) -> None:
    """RELIABILITY K27: the fence survives the dead letters."""
    world.publish(queue="q")
    (zombie,) = world.claim()
    world.clock.advance(seconds=31)
    world.store.run(engine.recover())
    (second,) = world.claim_suspect()
    world.die(second)
    world.operations.dead.redrive(second.message.id)
    (third,) = world.claim()
    assert third.epoch > second.epoch > zombie.epoch
    assert not world.done(zombie)
    assert not world.done(second)
    assert world.done(third)


@pytest.mark.covers("X37")
def test_a_stream_halted_by_it_gets_it_back_as_its_head(world: World) -> None:
    first, second = world.in_stream(2)
    die_in_order(world, first, halt=True)
    third = world.publish(stream="s", queue="q")
    assert world.claimed() == []
    assert world.operations.dead.list()[0].halts
    world.operations.dead.redrive(first)
    assert world.order() == [first, second, third]
    assert world.operations.streams.list()[0].halted_by is None
    assert world.claimed(run=5) == [first, second, third]
    world.healthy()


@pytest.mark.covers("X37")
def test_a_stream_that_went_on_gets_it_back_at_the_end(world: World) -> None:
    first, second, third = world.in_stream(3)
    die_in_order(world, first)
    world.operations.dead.redrive(first)
    assert world.order() == [second, third, first]
    assert world.claimed(run=5) == [second, third, first]
    world.healthy()


def test_a_stream_in_which_nothing_is_left_gets_it_back_as_its_head(world: World) -> None:
    (id,) = world.in_stream(1)
    die_in_order(world, id)
    world.operations.housekeeping()  # the row of the stream is gone too
    assert world.sql("select count(*) from holdfast.stream") == [(0,)]
    world.operations.dead.redrive(id)
    assert world.one(id).head
    assert world.claimed() == [id]
    world.healthy()


def test_redrive_now_goes_out_of_the_order(world: World) -> None:
    first, second = world.in_stream(2)
    die_in_order(world, first)
    world.operations.dead.redrive(first, now=True)
    assert world.order() == [second]
    assert world.one(first).position is None
    assert world.one(first).stream == "s"
    assert sorted(world.claimed()) == sorted([first, second])
    world.healthy()


def test_redrive_now_lifts_the_halt_of_its_stream(world: World) -> None:
    first, second = world.in_stream(2)
    die_in_order(world, first, halt=True)
    world.operations.dead.redrive(first, now=True)
    assert sorted(world.claimed()) == sorted([first, second])
    world.healthy()


def test_a_stream_halted_by_an_operator_stays_halted(world: World) -> None:
    first, second = world.in_stream(2)
    die_in_order(world, first)
    world.operations.streams.halt("q", "s", "migration")
    world.operations.dead.redrive(first)
    assert world.order() == [second, first]
    assert world.claimed() == []
    world.healthy()


def test_many_come_back_in_the_order_of_their_old_positions(world: World) -> None:
    ids = world.in_stream(5)
    for id in reversed(ids):  # the order of deaths is not the order of positions
        world.operations.messages.poison(id, "all of them")
        world.clock.advance(seconds=1)
    other = world.publish(queue="other")
    world.die(world.claim("other", name="w2")[0])
    seen: list[int] = []
    many = world.operations.dead.redrive_many(Filter(queue="q"), progress=seen.append)
    assert (many.changed, many.canary, seen) == (5, None, [5])
    assert world.order() == ids
    assert [each.id for each in world.operations.dead.list()] == [other]
    world.healthy()


def test_many_with_the_one_that_halts_their_stream(world: World) -> None:
    ids = world.in_stream(4)
    die_in_order(world, ids[0])
    die_in_order(world, ids[1], halt=True)
    assert world.operations.dead.redrive_many(Filter(stream="s")).changed == 2
    # The one that halted stands where it stood; the other one's place went on without it.
    assert world.order() == [ids[1], ids[2], ids[3], ids[0]]
    assert world.claimed(run=9) == world.order()
    world.healthy()


def test_many_in_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.dead.BATCH", 2)
    ids = world.in_stream(5)
    for id in ids:
        die_in_order(world, id)
    assert world.operations.dead.redrive_many(Filter()).changed == 5
    assert world.order() == ids


@pytest.mark.covers("W18")
def test_many_by_reason(world: World) -> None:
    for reason in (1, 2, 1):
        world.publish(queue="q")
        world.die(world.claim()[0], last=Reason(reason))
    assert world.operations.dead.redrive_many(Filter(reason=Reason.TRANSPORT_UNAVAILABLE)).changed == 2
    assert [each.last_reason for each in world.operations.dead.list()] == [2]


def test_a_message_that_died_out_of_the_order_comes_back_at_the_end(world: World) -> None:
    first, second = world.in_stream(2)
    world.operations.streams.release(second)
    leased = next(each for each in world.claim() if each.message.id == second)
    world.die(leased, halt=True)
    assert world.operations.streams.list()[0].halted_by is None
    world.operations.dead.redrive(second)
    assert world.order() == [first, second]
    world.healthy()


def test_one_queue_of_several(world: World) -> None:
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    id = world.publish()
    world.die(world.claim("a", name="wa")[0])
    world.die(world.claim("b", name="wb")[0])
    assert [each.queue for each in world.operations.dead.redrive(id, queue="a")] == ["a"]
    assert [each.queue for each in world.operations.dead.list()] == ["b"]
    with pytest.raises(NotFound, match="in queue a"):
        world.operations.dead.redrive(id, queue="a")


def test_redrive_is_refused_for_what_is_not_dead(world: World) -> None:
    id = world.publish(queue="q")
    with pytest.raises(NotFound, match="no dead letter"):
        world.operations.dead.redrive(id)


# -- discard


@pytest.mark.covers("X41", "X43")
def test_discard_ends_it_and_frees_its_dedupe_key(world: World, caplog: pytest.LogCaptureFixture) -> None:
    id = world.publish(queue="q", dedupe="k")
    world.die(world.claim()[0])
    assert world.published(queue="q", dedupe="k").duplicate
    caplog.set_level("INFO", "holdfast.operations")
    (changed,) = world.operations.dead.discard(id, "the customer left")
    assert changed.what == "discarded"
    assert world.outcome(id) == ["discarded"]
    assert "the customer left" in caplog.text
    assert world.operations.dead.list() == []
    assert not world.published(queue="q", dedupe="k").duplicate
    with pytest.raises(NotFound):
        world.operations.dead.discard(id, "again")


def test_discard_of_what_halts_a_stream_says_that_it_stays_halted(world: World) -> None:
    first, second = world.in_stream(2)
    die_in_order(world, first, halt=True)
    (changed,) = world.operations.dead.discard(first, "wrong")
    assert "stream s is still halted" in changed.what
    assert world.claimed() == []
    world.operations.streams.resume("q", "s")
    assert world.claimed() == [second]
    world.healthy()


def test_dying_again_after_a_redrive(world: World) -> None:
    id = world.publish(queue="q")
    world.die(world.claim()[0])
    world.operations.dead.redrive(id)
    (leased,) = world.claim()
    world.settle(leased, Outcome.DEAD, reason=Reason.VALIDATION_FAILURE, error="still wrong")
    ((letter, content),) = world.operations.dead.show(id)
    assert (letter.redrives, letter.attempts) == (1, 1)
    assert [each.text for each in content.errors] == ["the end", "still wrong"]
