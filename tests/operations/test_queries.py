"""The numbers, on a state whose numbers are known."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast.model.message import Flag, Reason
from tests.operations.world import NOON, World


def failed(world: World, attempts: int, reason: Reason, delay: float = 600.0, queue: str = "q") -> UUID:
    """A message that has failed so often, the last time now, for that reason."""
    id = world.publish(f"type.{int(reason)}", queue=queue)
    for _ in range(attempts):
        world.operations.messages.retry(id)
        leased = next(each for each in world.claim(queue) if each.message.id == id)
        world.fail(leased, delay, reason, f"failure {int(reason)}")
    return id


@pytest.mark.covers("W59", "W55", "W58")
def test_poison_candidates_by_attempts_then_age(world: World) -> None:
    ten = failed(world, 10, Reason.HANDLER_EXCEPTION)
    world.clock.advance(seconds=1)
    twelve = failed(world, 12, Reason.VALIDATION_FAILURE, 300.0)
    also_ten = failed(world, 10, Reason.DEPENDENCY_FAILURE)
    failed(world, 9, Reason.HANDLER_EXCEPTION)
    parked = failed(world, 11, Reason.HANDLER_EXCEPTION)
    world.operations.messages.park(parked)  # not scheduled for a retry any more
    healed = failed(world, 10, Reason.HANDLER_EXCEPTION)
    world.operations.messages.retry(healed, reset=True)
    found = world.operations.poison_candidates()
    assert [each.id for each in found] == [twelve, ten, also_ten]
    first = found[0]
    assert (first.queue, first.type, first.attempts, first.error) == ("q", "type.3", 12, "failure 3")
    assert first.claimable_at == NOON + timedelta(seconds=301)
    assert first.created_at == NOON + timedelta(seconds=1)
    assert [each.id for each in world.operations.poison_candidates(attempts=9)][-1] not in (
        twelve,
        ten,
        also_ten,
    )
    assert len(world.operations.poison_candidates(limit=2)) == 2


@pytest.mark.covers("W77")
def test_number_of_poison_candidates_counts_parked_ones_too(world: World) -> None:
    failed(world, 10, Reason.HANDLER_EXCEPTION)
    world.operations.messages.park(failed(world, 11, Reason.HANDLER_EXCEPTION))
    failed(world, 9, Reason.HANDLER_EXCEPTION)
    assert world.operations.poison_count() == 2
    assert world.operations.poison_count(attempts=9) == 3


@pytest.mark.covers("W74")
def test_retry_distribution_of_failed_messages(world: World) -> None:
    for attempts in (1, 1, 3, 5):
        failed(world, attempts, Reason.HANDLER_EXCEPTION)
    healed = failed(world, 4, Reason.HANDLER_EXCEPTION)
    world.operations.messages.retry(healed, reset=True)
    world.publish(queue="q")
    assert world.operations.retry_distribution() == {1: 2, 3: 1, 5: 1}


@pytest.mark.covers("W75", "W20")
def test_failure_reasons_most_frequent_first(world: World) -> None:
    for reason, count in (
        (Reason.HANDLER_EXCEPTION, 2),
        (Reason.TRANSPORT_UNAVAILABLE, 3),
        (Reason.UNKNOWN, 1),
    ):
        for _ in range(count):
            failed(world, 1, reason)
    failed(world, 2, Reason.TIMEOUT_EXCEEDED, queue="other")
    world.publish(queue="q")
    for _ in range(3):
        world.publish(queue="doomed")
        world.die(world.claim("doomed", name="w2")[0], last=Reason.HANDLER_EXCEPTION)
    assert [
        (each.reason, each.pending, each.dead, each.count) for each in world.operations.failure_reasons()
    ] == [
        (Reason.HANDLER_EXCEPTION, 2, 3, 5),
        (Reason.TRANSPORT_UNAVAILABLE, 3, 0, 3),
        (Reason.TIMEOUT_EXCEEDED, 1, 0, 1),
        (Reason.UNKNOWN, 1, 0, 1),
    ]


@pytest.mark.covers("W76")
def test_retry_backlog_counts_what_lies_in_the_future(world: World) -> None:
    assert world.operations.retry_backlog().count == 0
    failed(world, 1, Reason.HANDLER_EXCEPTION, 60.0)
    failed(world, 1, Reason.HANDLER_EXCEPTION, 120.0)
    failed(world, 1, Reason.HANDLER_EXCEPTION, 900.0)
    world.operations.messages.park(failed(world, 1, Reason.HANDLER_EXCEPTION))
    world.publish(queue="q", delay=5000.0)  # scheduled, but no retry
    world.clock.advance(seconds=60)  # the first is due
    backlog = world.operations.retry_backlog()
    assert (backlog.count, backlog.next_at, backlog.latest_at) == (
        2,
        NOON + timedelta(seconds=120),
        NOON + timedelta(seconds=900),
    )


@pytest.mark.covers("W86", "W56")
def test_a_message_in_a_retry_loop_is_recognised(world: World) -> None:
    same, mixed = world.publish(queue="q"), world.publish(queue="q")
    for number in range(10):
        for leased in world.claim():
            reason = Reason(number % 2 + 1) if leased.message.id == mixed else Reason.VALIDATION_FAILURE
            world.fail(leased, 60.0, reason)
        world.clock.advance(seconds=60)
    quick = world.publish(queue="q")
    world.fail(next(each for each in world.claim() if each.message.id == quick))
    found = {each.delivery.id: each for each in world.operations.stuck()}
    assert set(found) == {same, mixed}
    assert (found[same].same_reason, found[mixed].same_reason) == (True, False)
    assert (found[same].failing_since, found[same].failed_at) == (NOON, NOON + timedelta(seconds=540))
    assert found[same].delivery.attempts == 10


def test_status_adds_up(world: World) -> None:
    world.subscribe("q", "order.placed")
    for _ in range(3):
        world.publish()
    for leased in world.claim(total=2):
        world.done(leased)
    world.clock.advance(seconds=40)
    world.die(world.claim()[0])
    world.publish(stream="s")
    world.fail(world.claim()[0], 600.0)
    cancelled = world.publish()
    world.operations.messages.cancel(cancelled)
    world.publish("nobody.cares")
    world.publish("nobody.cares")
    status = world.operations.status()
    assert status.at == NOON + timedelta(seconds=40)
    assert status.states == {"retrying": 1, "unrouted": 2}
    assert (status.depth, status.dead) == (3, 1)
    assert (status.oldest_at, status.oldest_age) == (NOON + timedelta(seconds=40), 0.0)
    assert [(each.stream, each.state) for each in status.blocked] == [("s", "retrying")]
    assert status.ended == {"done": 2, "dead": 1, "cancelled": 1}
    assert [(each.type, each.count) for each in status.unrouted] == [("nobody.cares", 2)]
    assert [(each.name, each.age) for each in status.workers] == [("w1", 40.0)]
    world.clock.advance(seconds=30)
    assert world.operations.status().ended == {"dead": 1, "cancelled": 1}


def test_status_knows_what_is_unhealthy(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.worker("w1")
    assert world.operations.status().problems == ()
    world.publish(stream="s")
    assert world.operations.status().problems == ()
    world.clock.advance(seconds=301)
    world.publish("nobody.cares")
    world.operations.streams.halt("q", "s", "wait")
    assert [each.text for each in world.operations.status().problems] == [
        "No worker is running, and 1 message waits: the last was seen at 12:00:00 UTC.",
        "The oldest message of queue q has been due for 5 minutes.",
        "Stream s of queue q is halted since 12:05:01 UTC by operator: wait; 1 message waits.",
        "Nobody subscribes to nobody.cares: 1 message waits for a subscriber.",
    ]


def test_flags_of_a_delivery(world: World) -> None:
    id = failed(world, 1, Reason.HANDLER_EXCEPTION)
    assert world.one(id).has_failed
    assert world.one(id).status == int(Flag.STORED | Flag.FAILED)
