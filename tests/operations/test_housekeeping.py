"""What goes by itself, and what never does."""

from __future__ import annotations

import pytest

from holdfast.errors import NotFound
from tests.operations.world import World

DAY = 86_400


def test_nothing_to_do(world: World) -> None:
    world.in_stream(2)
    done = world.operations.housekeeping()
    assert (done.recovered, done.adopted, done.history, done.dedupe, done.streams, done.workers) == (0,) * 6


@pytest.mark.covers("X41")
def test_history_is_kept_for_seven_days(world: World) -> None:
    old = world.publish(queue="q")
    world.done(world.claim()[0])
    world.clock.advance(days=1)
    young = world.publish(queue="q")
    world.done(world.claim()[0])
    world.clock.advance(days=6)
    assert world.operations.housekeeping().history == 0
    world.clock.advance(seconds=1)
    assert world.operations.housekeeping().history == 1
    assert world.outcome(young) == ["done"]
    with pytest.raises(NotFound):
        world.operations.messages.show(old)


@pytest.mark.covers("X43")
def test_dedupe_keys_are_held_for_seven_days_after_the_end(world: World) -> None:
    world.publish(queue="q", dedupe="k")
    world.done(world.claim()[0])
    world.clock.advance(days=7)
    assert world.operations.housekeeping().dedupe == 0
    assert world.published(queue="q", dedupe="k").duplicate
    world.clock.advance(seconds=1)
    assert world.operations.housekeeping().dedupe == 1
    assert not world.published(queue="q", dedupe="k").duplicate


@pytest.mark.covers("X43")
@pytest.mark.parametrize("left", ["pending", "parked", "dead"])
def test_dedupe_keys_are_held_as_long_as_one_delivery_is_left(world: World, left: str) -> None:
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    id = world.publish(dedupe="k")
    world.done(world.claim("a", name="wa")[0])
    if left == "parked":
        world.operations.messages.park(id)
    if left == "dead":
        world.die(world.claim("b", name="wb")[0])
    world.clock.advance(days=30)
    assert world.operations.housekeeping().dedupe == 0
    assert world.published(dedupe="k").duplicate


@pytest.mark.covers("X40", "X49")
def test_work_is_never_deleted_however_old(world: World) -> None:
    ids = {
        world.publish(queue="q"),
        world.publish(queue="q", delay=60.0),
        world.publish(stream="t", queue="q", delay=5e8),
        world.publish("nobody.cares"),
        *world.in_stream(2),
    }
    parked = world.publish(queue="q")
    world.operations.messages.park(parked)
    dead = world.publish(queue="doomed")
    world.die(world.claim("doomed", name="w2")[0])
    world.clock.advance(days=3650)
    world.operations.housekeeping()
    assert set(world.states()) == {*ids, parked}
    assert [each.id for each in world.operations.dead.list()] == [dead]


def test_rows_of_empty_streams_go_and_come_back(world: World) -> None:
    world.in_stream(1, "done")
    world.in_stream(1, "halted")
    world.in_stream(1, "open")
    for leased in world.claim():
        if leased.message.stream == "halted":
            world.die(leased, halt=True)
        elif leased.message.stream == "done":
            world.done(leased)
    assert world.operations.housekeeping().streams == 1
    assert world.sql("select name from holdfast.stream order by name") == [("halted",), ("open",)]
    (again,) = world.in_stream(1, "done")
    assert world.claimed(name="w2") == [again]
    world.healthy()


def test_workers_that_were_not_seen_for_a_day(world: World) -> None:
    world.worker("gone")
    world.publish(queue="q")
    world.claim(name="holds")
    world.clock.advance(seconds=DAY)
    assert world.operations.housekeeping().workers == 0
    world.clock.advance(seconds=1)
    world.worker("fresh")
    world.operations.housekeeping()
    assert [each.name for each in world.operations.queues.workers()] == ["fresh"]


def test_a_worker_that_holds_something_is_kept(world: World) -> None:
    world.publish(queue="q")
    (leased,) = world.claim(name="holds")
    world.clock.advance(days=2)
    world.sql("update holdfast.lease set until = until + :more", more=more(world, 3 * DAY))
    assert world.operations.housekeeping().workers == 0
    assert world.done(leased)


def more(world: World, seconds: int) -> object:
    from datetime import timedelta

    return seconds * 1_000_000 if world.store.engine.dialect == "sqlite" else timedelta(seconds=seconds)


@pytest.mark.covers("X42")
def test_what_waited_for_a_subscriber_is_adopted(world: World) -> None:
    ids = [world.publish("late.news", "s") for _ in range(2)]
    world.sql(
        "insert into holdfast.subscription (pattern, queue, created_at) "
        "select 'late.*', 'q', created_at from holdfast.message limit 1"
    )
    assert world.operations.housekeeping().adopted == 2
    assert world.order() == ids
    world.healthy()


def test_lapsed_leases_are_ended(world: World) -> None:
    id = world.publish(queue="q")
    world.claim()
    world.clock.advance(seconds=31)
    assert world.operations.housekeeping().recovered == 1
    assert world.states() == {id: "suspect"}
