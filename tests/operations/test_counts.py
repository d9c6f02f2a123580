"""The counts, which take short cuts, against the states of the single messages, which do not."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from holdfast.errors import NotFound, Refused
from holdfast.model.work import Outcome
from holdfast.operations import Delivery, Filter
from holdfast.store.plans import counting, engine
from tests.operations.world import World


def disturb(world: World, dice: random.Random) -> None:
    """Something happens, at random."""
    operations = world.operations
    queue, stream = dice.choice("ab"), dice.choice(["s0", "s1", "s2"])
    found = operations.messages.find(limit=200)
    id = dice.choice(found).id if found else world.publish(queue=queue)
    match dice.randrange(12):
        case 0 | 1:
            for _ in range(2):
                delay = dice.choice([None, None, 50.0])
                world.publish(stream=dice.choice([stream, stream, None]), queue=queue, delay=delay)
        case 2 | 3:
            for leased in world.claim(queue, name=f"w-{queue}", total=4, run=dice.choice([1, 3])):
                if leased.run == leased.message.seq and dice.random() < 0.7:
                    outcome = dice.choice([Outcome.DONE, Outcome.AGAIN, Outcome.DEAD])
                    failed = outcome is not Outcome.DONE
                    world.settle(
                        leased,
                        outcome,
                        failed=failed,
                        delay=30.0 if failed else 0.0,
                        reason=2 if failed else None,
                        halt=outcome is Outcome.DEAD and dice.random() < 0.5,
                    )
        case 4:
            world.clock.advance(seconds=dice.choice([5, 20, 40]))
        case 5:
            operations.messages.park(id)
        case 6:
            operations.messages.retry(id)
        case 7:
            operations.streams.release(id)
        case 8:
            operations.streams.halt(queue, stream, "why not")
        case 9:
            operations.streams.resume(queue, stream)
        case 10:
            operations.dead.redrive_many(Filter(queue=queue), now=dice.random() < 0.5)
        case _:
            world.store.run(engine.recover())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counts_and_states_agree_whatever_happened(world: World, seed: int) -> None:
    dice = random.Random(seed)
    seen: set[str] = set()
    for _ in range(130):
        try:
            disturb(world, dice)
        except (Refused, NotFound):
            continue
        states = Counter((each.queue, each.state) for each in world.operations.messages.find(limit=10_000))
        counted = Counter(
            {
                (queue.name, state): count
                for queue in world.operations.queues.list()
                for state, count in queue.states.items()
            }
        )
        assert counted == states
        seen |= {state for _, state in states}
    assert seen >= {"ready", "leased", "waiting", "blocked", "retrying", "parked", "suspect"}
    world.healthy()


@pytest.mark.parametrize("seed", [4, 5])
def test_what_a_page_counts_at_once_is_the_same_below_its_limit(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a large table, where each state is counted through an index. Parked ones behind others count as waiting."""
    monkeypatch.setattr(counting, "EXACT_ROWS", -1)
    dice = random.Random(seed)
    seen: set[str] = set()
    for _ in range(130):
        try:
            disturb(world, dice)
        except (Refused, NotFound):
            continue
        exact = {each.name: each for each in world.operations.queues.list()}
        _, quick, _, loops = world.operations.queues.quick_survey()
        parked = [each for each in world.operations.messages.find(limit=10_000) if each.state == "parked"]
        behind = [each for each in parked if each.position is not None and not is_head(world, each)]
        for each in quick:
            if each.name not in {letter.queue for letter in behind}:
                assert each.states == exact[each.name].states
            assert each.depth == exact[each.name].depth
            assert each.more == ()
        assert loops == world.operations.poison_count() == 0
        seen |= {state for each in quick for state in each.states}
        found = world.operations.streams.blocked()
        assert found == world.operations.streams.list(blocked=True)
    assert seen >= {"ready", "leased", "waiting", "blocked", "retrying", "parked", "suspect"}


def is_head(world: World, each: Delivery) -> bool:
    found = world.operations.streams.list(queue=each.queue, stream=each.stream)
    return any(stream.head == each.id for stream in found)


def test_beyond_the_limit_a_page_says_at_least(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "EXACT_ROWS", 3)
    monkeypatch.setattr(counting, "CAP", 5)
    for n in range(12):
        world.publish(queue="a", delay=50.0 if n >= 9 else None)
    for n in range(12):
        world.publish("t", f"s{n % 6}", queue="b")
    status = world.operations.status()
    assert status.states == {"ready": 5 + 5, "scheduled": 3, "waiting": 5}
    assert status.more == ("ready", "waiting")
    queues = {each.name: each for each in status.queues}
    assert (queues["a"].more, queues["b"].more) == (("ready",), ("ready", "waiting"))
    assert "at least 18 messages wait" in status.problems[0].text
    exact = {each.name: each.depth for each in world.operations.queues.list()}
    assert exact == {"a": 12, "b": 12}


@pytest.mark.parametrize(("attempts", "loops"), [(10, 1), (9, 0)])
def test_what_may_be_poison_is_known_in_a_large_table_too(
    world: World, monkeypatch: pytest.MonkeyPatch, attempts: int, loops: int
) -> None:
    monkeypatch.setattr(counting, "EXACT_ROWS", 0)
    world.fail_often(world.publish(queue="a"), attempts, "a")
    assert [each.name for each in world.operations.status().problems].count("retry-loop") == loops
