"""The counts, which take short cuts, against the states of the single messages, which do not."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from holdfast.errors import NotFound, Refused
from holdfast.model.work import Outcome
from holdfast.operations import Filter
from holdfast.store.plans import engine
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
