"""Queues in an operator's hands."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast.errors import NotFound, Refused, UsageError
from tests.operations.world import NOON, World


def test_list_counts_by_state_and_says_who_takes_from_a_queue(world: World) -> None:
    world.subscribe("mail", "order.*", "user.created")
    world.subscribe("quiet", "never")
    world.publish("order.placed", "s")
    world.clock.advance(seconds=10)
    world.publish("order.paid", "s")
    world.publish("order.sent", delay=60.0)
    world.publish("order.lost")
    world.claim("mail", total=1)
    world.publish(queue="old")
    world.die(world.claim("old", name="gone")[0])
    found = {each.name: each for each in world.operations.queues.list()}
    mail = found["mail"]
    assert mail.states == {"leased": 1, "waiting": 1, "scheduled": 1, "ready": 1}
    assert (mail.depth, mail.oldest_at, mail.dead) == (4, NOON, 0)
    assert (mail.subscriptions, mail.workers, mail.is_orphaned) == (
        ("order.*", "user.created"),
        ("w1",),
        False,
    )
    assert (found["old"].dead, found["old"].depth) == (1, 0)
    assert found["quiet"].is_orphaned
    assert set(found) == {"mail", "old", "quiet"}


@pytest.mark.covers("X42")
def test_a_queue_is_orphaned_when_nobody_takes_from_it_any_more(world: World) -> None:
    world.subscribe("removed", "order.placed")
    world.subscribe("kept", "order.paid")
    world.publish()
    orphaned = {each.name: each.is_orphaned for each in world.operations.queues.list()}
    assert orphaned == {"removed": False, "kept": False}  # no worker at all says nothing about handlers
    world.worker("w1", "kept")
    orphaned = {each.name: each.is_orphaned for each in world.operations.queues.list()}
    assert orphaned == {"removed": True, "kept": False}


def test_a_worker_is_alive_for_a_lease(world: World) -> None:
    world.worker("w1", "a", "b")
    world.clock.advance(seconds=30)
    (worker,) = world.operations.queues.workers()
    assert (worker.name, worker.queues, worker.age, worker.is_alive, worker.leases) == (
        "w1",
        ("a", "b"),
        30.0,
        True,
        0,
    )
    world.clock.advance(seconds=1)
    assert not world.operations.queues.workers()[0].is_alive


# -- pause


def test_nothing_is_claimed_from_a_paused_queue(world: World) -> None:
    world.subscribe("q", "order.placed")
    id = world.publish()
    running = world.publish(stream="s")
    leased = next(each for each in world.claim() if each.message.id == running)
    follower = world.publish(stream="s")
    world.operations.queues.pause("q", "maintenance")
    world.clock.advance(seconds=5)
    world.operations.queues.pause("q", "still")
    assert world.done(leased)  # what runs settles, and promotes
    assert world.claimed(name="w2") == []
    (queue,) = world.operations.queues.list()
    assert (queue.paused_at, queue.paused_why) == (NOON, "still")
    assert world.operations.queues.resume("q")
    assert not world.operations.queues.resume("q")
    assert world.claimed(name="w2") == [follower]
    assert world.states()[id] == "leased"


def test_unknown_queues(world: World) -> None:
    world.subscribe("q", "x")
    for order in (
        lambda: world.operations.queues.pause("nope"),
        lambda: world.operations.queues.resume("nope"),
        lambda: world.operations.queues.move("nope", "q"),
        lambda: world.operations.queues.move("q", "nope"),
        lambda: world.operations.queues.drop("nope"),
    ):
        with pytest.raises(NotFound, match="no queue nope; there are: q"):
            order()
    with pytest.raises(UsageError, match="itself"):
        world.operations.queues.move("q", "q")


# -- move


def filled(world: World) -> list[UUID]:
    """A queue with two streams, one of them halted, and messages out of the order in several states."""
    world.subscribe("old", "order.*")
    world.subscribe("new", "nothing")
    ids = [world.publish("order.placed", f"s{number % 2}") for number in range(6)]
    world.operations.streams.halt("old", "s1", "wait")
    ids += [world.publish("order.loose") for _ in range(3)]
    world.operations.messages.park(ids[7])
    return ids


@pytest.mark.covers("X42")
@pytest.mark.parametrize("batch", [500, 2])
@pytest.mark.parametrize("target", ["new", "a-name-that-sorts-first"])
def test_move_keeps_the_order_behind_what_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch, batch: int, target: str
) -> None:
    monkeypatch.setattr("holdfast.operations.queues.BATCH", batch)
    ids = filled(world)
    world.subscribe(target, "nothing")
    there = world.publish(stream="s0", queue=target)
    epochs = {each.id: each.epoch for each in world.operations.messages.find()}
    seen: list[int] = []
    moved = world.operations.queues.move("old", target, progress=seen.append)
    assert (moved.moved, moved.ended, moved.unsubscribed) == (9, 0, ("order.*",))
    assert seen[-1] == 9
    assert world.order("s0", target) == [there, ids[0], ids[2], ids[4]]
    assert world.order("s1", target) == [ids[1], ids[3], ids[5]]
    assert {each.queue for each in world.operations.messages.find()} == {target}
    assert all(each.epoch > epochs[each.id] for each in world.operations.messages.find() if each.id != there)
    assert world.states()[ids[7]] == "parked"
    assert world.publish("order.placed")  # nobody subscribes any more
    assert world.operations.status().states["unrouted"] == 1
    world.healthy()
    claimed = world.claimed(target, run=9, name="w9")
    assert [id for id in claimed if id in (there, *ids[:6:2])] == [there, ids[0], ids[2], ids[4]]
    assert [id for id in claimed if id in ids[1:6:2]] == [ids[1], ids[3], ids[5]]


def test_move_ends_what_is_pending_in_the_target_anyway_or_has_ended_there(world: World) -> None:
    """What had ended there was started again."""
    for queue in ("old", "new"):
        world.subscribe(queue, "order.*")
    first, second = (world.publish("order.placed", "s", dedupe=key) for key in ("k1", "k2"))
    world.done(world.claim("new", name="w2")[0])
    moved = world.operations.queues.move("old", "new", progress=None)
    assert (moved.moved, moved.ended, moved.over) == (0, 2, 1)
    assert (world.outcome(first), world.outcome(second)) == (["done", "cancelled"], ["cancelled"])
    whys = {each.why for id in (first, second) for each in world.operations.messages.show(id).ended}
    assert whys == {None, "moved: it has ended in queue new", "moved: queue new has it, too"}
    assert world.order("s", "new") == [second]
    assert world.published("order.placed", dedupe="k2").duplicate
    world.healthy()


@pytest.mark.parametrize("verb", ["move", "drop"])
def test_a_queue_that_is_worked_on_is_not_emptied(world: World, verb: str) -> None:
    ids = filled(world)
    world.worker("w1", "old")

    def empty() -> None:
        if verb == "move":
            world.operations.queues.move("old", "new")
        else:
            world.operations.queues.drop("old", force=True)

    with pytest.raises(Refused, match="taken from by w1"):
        empty()
    claimed = world.claim("old")
    assert claimed
    world.operations.queues.pause("old")
    with pytest.raises(Refused, match="leased by w1"):
        empty()
    assert {each.id for each in world.operations.messages.find()} == set(ids)
    world.clock.advance(seconds=31)
    empty()  # the leases have lapsed: they are counted, and then it goes on
    if verb == "move":
        moved = {each.id: each for each in world.operations.messages.find()}
        assert moved[claimed[0].message.id].vanished == 1
    assert not world.done(claimed[0])
    world.healthy()


def test_the_engines_own_queue_is_not_emptied(world: World) -> None:
    world.publish(stream="s", queue="q", delay=60.0)
    with pytest.raises(Refused, match="engine's own"):
        world.operations.queues.drop("holdfast/timer", force=True)


# -- drop


@pytest.mark.covers("X42", "X41")
def test_drop_discards_only_when_forced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.queues.BATCH", 2)
    ids = filled(world)
    keyed = world.publish("order.keyed", dedupe="k")
    with pytest.raises(Refused, match="10 messages are pending"):
        world.operations.queues.drop("old")
    assert len(world.operations.messages.find()) == 10
    dropped = world.operations.queues.drop("old", force=True)
    assert (dropped.ended, dropped.moved, dropped.unsubscribed) == (10, 0, ("order.*",))
    assert world.operations.messages.find() == []
    assert {outcome for id in [*ids, keyed] for outcome in world.outcome(id)} == {"discarded"}
    assert [each.name for each in world.operations.queues.list()] == ["new"]
    assert not world.published("order.keyed", dedupe="k").duplicate
    assert world.sql("select count(*) from holdfast.stream where queue = 'old'") == [(0,)]


def test_drop_of_an_empty_queue_needs_no_force_and_keeps_dead_letters(world: World) -> None:
    world.subscribe("old", "order.placed")
    id = world.publish()
    world.die(world.claim("old")[0])
    world.clock.advance(seconds=31)
    world.operations.queues.drop("old")
    assert [each.id for each in world.operations.dead.list()] == [id]
    world.operations.dead.redrive(id)
    assert world.one(id).queue == "old"


def test_oldest_does_not_count_what_is_not_due(world: World) -> None:
    world.publish(queue="q", delay=60.0)
    parked = world.publish(queue="q")
    world.operations.messages.park(parked)
    world.clock.advance(seconds=50)
    assert world.operations.queues.list()[0].oldest_at is None
    world.clock.advance(seconds=60)
    assert world.operations.queues.list()[0].oldest_at == NOON + timedelta(seconds=60)
