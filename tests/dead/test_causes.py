"""Dead letters have a cause, whatever way they died; they are grouped by it and found by everything known of them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast.errors import UsageError
from holdfast.model.message import Reason
from holdfast.model.work import Leased
from holdfast.operations import Filter
from holdfast.rules import delivery
from holdfast.rules.delivery import conclude
from holdfast.rules.fingerprint import fingerprint
from holdfast.rules.policy import HandlerPolicy
from holdfast.store.plans import engine
from tests.operations.world import NOON, World


def conclude_dead(world: World, leased: Leased, ending: delivery.Ending, **declared: object) -> None:
    """Settled as a worker settles."""
    settlement = conclude(leased, ending, HandlerPolicy(**declared), NOON, 0.5)
    assert settlement is not None
    assert settlement.outcome == "dead"
    world.store.run(engine.settle([settlement], ()))


def kill(world: World, text: str, *, type: str = "order.placed", stream: str | None = None) -> UUID:
    id = world.publish(type, stream, queue="q")
    (leased,) = [each for each in world.claim() if each.message.id == id]
    conclude_dead(world, leased, delivery.Died(text))
    world.clock.advance(seconds=1)
    return id


def test_every_way_to_die_leaves_a_fingerprint(world: World) -> None:
    declared = kill(world, "no customer 17")
    world.publish(queue="q")
    (leased,) = world.claim()
    for _ in range(10):  # vanishes until its starts are spent
        world.clock.advance(seconds=60)
        world.store.run(engine.recover())
        (leased,) = world.claim_suspect()
    conclude_dead(world, leased, delivery.StartsSpent())
    buried = world.publish(queue="q")
    world.operations.messages.poison(buried, "it is no good: 4711")
    prints = {each.id: each.fingerprint for each in world.operations.dead.list()}
    assert prints[declared] == fingerprint("Dead: no customer 99", Reason.VALIDATION_FAILURE)
    assert prints[leased.message.id] == fingerprint(
        "Poison: handed out as often as allowed (10). The last worker never came back.",
        Reason.WORKER_VANISHED,
    )
    assert prints[buried] == fingerprint("it is no good: 1", Reason.POISON_MESSAGE)
    for id, found in prints.items():
        ((_, content),) = world.operations.dead.show(id)
        assert [death.fingerprint for death in content.deaths] == [found]


def test_groups_count_causes_with_first_and_last_death_and_a_sample(world: World) -> None:
    first = [kill(world, f"no customer {n}") for n in range(3)]
    kill(world, "no customer 9", type="order.paid")
    kill(world, "wrong currency")
    groups = world.operations.dead.groups()
    assert [(group.count, group.type) for group in groups] == [
        (3, "order.placed"), (1, "order.placed"), (1, "order.paid"),
    ]  # fmt: skip
    biggest = groups[0]
    assert biggest.fingerprint == groups[2].fingerprint != groups[1].fingerprint
    assert (biggest.reason, biggest.queue, biggest.id) == (Reason.VALIDATION_FAILURE, "q", first[-1])
    assert (biggest.first_at, biggest.last_at) == (NOON, NOON + timedelta(seconds=2))
    assert biggest.error == "Dead: no customer 2"
    world.operations.dead.hold(first[0], "mine")
    assert [group.held for group in world.operations.dead.groups(limit=1)] == [1]
    assert [group.count for group in world.operations.dead.groups(Filter(type="order.paid"))] == [1]


@pytest.mark.covers("X46")
def test_letters_are_found_by_everything(world: World) -> None:
    one = kill(world, "no customer 1", stream="s")
    two = kill(world, "100% of 'it' is wrong_")
    world.publish("other", queue="q")
    world.die(world.claim()[0], reason=Reason.POISON_MESSAGE, last=Reason.TIMEOUT_EXCEEDED)
    (three,) = [each.id for each in world.operations.dead.list(Filter(type="other"))]

    def found(**wanted: object) -> set[UUID]:
        return {each.id for each in world.operations.dead.list(Filter(**wanted))}

    everything = {one, two, three}
    assert found() == everything
    assert found(queue="q") == everything
    assert found(queue="nowhere") == set()
    assert found(stream="s") == {one}
    assert found(reason=4) == {three}
    assert found(died_of=7) == {three}
    assert found(died_of=3) == {one, two}
    assert found(text="NO CUSTOMER") == {one}
    assert found(text="100% of 'it'") == {two}
    assert found(text="wrong_") == {two}
    assert found(text="_") == {two}
    assert found(fingerprint=fingerprint("Dead: no customer 5", 3)) == {one}
    assert found(died_before=NOON + timedelta(seconds=1)) == {one}
    assert found(died_after=NOON) == {two, three}
    assert found(ids=(one, three)) == {one, three}
    assert found(id=two) == {two}
    assert found(held=True) == set()
    world.operations.dead.hold(two, "wait")
    assert found(held=True) == {two}
    assert found(held=False) == {one, three}
    assert found(redriven=True) == set()
    world.operations.dead.redrive(one)
    (leased,) = world.claim()
    conclude_dead(world, leased, delivery.Died("again"))
    assert found(redriven=True) == {one}
    assert found(redriven=False) == {two, three}
    assert world.operations.dead.count(Filter(redriven=False, held=False)) == 1
    with pytest.raises(UsageError, match="time zone"):
        Filter(died_before=NOON.replace(tzinfo=None))
    with pytest.raises(UsageError, match="Only dead letters"):
        world.operations.messages.find(Filter(held=True))


def test_a_second_death_is_linked_to_the_first(world: World) -> None:
    id = kill(world, "no customer 1")
    world.operations.dead.redrive(id)
    ((_, pending),) = world.operations.messages.show(id).pending
    assert [death.error for death in pending.deaths] == ["Dead: no customer 1"]
    world.clock.advance(seconds=60)
    (leased,) = world.claim()
    conclude_dead(world, leased, delivery.Died("still none"))
    ((letter, content),) = world.operations.dead.show(id)
    assert letter.redrives == 1
    assert [(death.died_at, death.reason, death.error) for death in content.deaths] == [
        (NOON, Reason.VALIDATION_FAILURE, "Dead: no customer 1"),
        (NOON + timedelta(seconds=61), Reason.VALIDATION_FAILURE, "Dead: still none"),
    ]
    assert len({death.fingerprint for death in content.deaths}) == 2
    assert [death.worker for death in content.deaths] == ["w1", "w1"]


def test_deaths_are_counted_whatever_became_of_the_letters(world: World) -> None:
    id = kill(world, "no")
    world.operations.dead.redrive(id)
    kill(world, "nor this")
    world.operations.dead.discard(kill(world, "nor that"), "gone")
    ((queue, count),) = [(each.queue, each.count) for each in world.operations.dead.deaths(3600)]
    assert (queue, count) == ("q", 3)
    world.clock.advance(seconds=3600)
    assert world.operations.dead.deaths(3600) == []


@pytest.mark.covers("X40")
def test_deaths_are_forgotten_only_when_their_message_is_over(world: World) -> None:
    kept, pending, gone = kill(world, "a"), kill(world, "b"), kill(world, "c")
    world.operations.dead.redrive(pending)
    world.operations.dead.discard(gone, "useless")
    world.clock.advance(days=8)
    assert world.operations.housekeeping().deaths == 1
    assert len(world.operations.dead.show(kept)[0][1].deaths) == 1
    assert len(world.operations.messages.show(pending).pending[0][1].deaths) == 1
