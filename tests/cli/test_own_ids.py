"""Commands about one of several messages with one id, and about a queue that is moved."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell
from tests.operations.test_own_ids import X, two_letters
from tests.operations.world import World


@pytest.mark.covers("X61")
def test_commands_show_every_candidate_and_take_a_number(world: World, holdfast: Shell) -> None:
    first, second = two_letters(world)
    shown = holdfast("dead", "show", str(X)).out
    assert [line.split() for line in shown.splitlines() if line.startswith("number")] == [
        ["number", str(first)],
        ["number", str(second)],
    ]
    assert [each["seq"] for each in holdfast("dead", "list", "--json").json] == [second, first]
    assert f"Several messages have the id {X}" in holdfast("why", str(X)).out
    answer = holdfast("dead", "redrive", str(X))
    assert answer.code == 2
    assert f"number {first} in queue q, dead" in answer.err
    assert "--number" in answer.err
    assert "redriven" in holdfast("dead", "redrive", str(X), "--number", str(second)).out
    answer = holdfast("dead", "redrive", str(X))
    assert answer.code == 1
    assert "another message with this id is pending there" in answer.err
    pending = world.one(X).seq
    assert "parked" in holdfast("messages", "park", str(X), "--number", str(pending)).out
    assert "cancelled" in holdfast("messages", "cancel", str(X), "--number", str(pending), "--yes").out
    assert (
        "discarded" in holdfast("dead", "discard", str(X), "--why", "x", "--number", str(first), "--yes").out
    )
    for wrong in (("dead", "redrive", "--queue", "q"), ("messages", "retry", "--queue", "q")):
        assert holdfast(*wrong, "--number", "1").code == 2


def test_a_move_tells_what_had_ended_there(world: World, holdfast: Shell) -> None:
    for queue in ("old", "new"):
        world.subscribe(queue, "order.*")
    for _ in range(3):
        world.publish()
    for leased in world.claim("new", name="w2")[:2]:
        world.done(leased)
    answer = holdfast("queues", "move", "old", "new", "--yes")
    assert answer.out.endswith("0 messages moved to new, 1 already there, 2 had ended there\n")
