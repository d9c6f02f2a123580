"""A message by a part of its id: its last eight characters, or its beginning."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.errors import NotFound, UsageError
from holdfast.operations.naming import tail
from tests.operations import world as worlds
from tests.operations.world import World

FIRST = UUID("01a1e164-2605-75af-9fb6-0c11f2c6a7d1")
SECOND = UUID("01a1e164-2605-75af-9fb6-aa00b1c2d3e4")
OTHER = UUID("01b00000-0000-7000-8000-777777777777")


@pytest.fixture
def three(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """One pending in two queues, one dead, one done."""
    made = iter([FIRST, SECOND, OTHER])
    monkeypatch.setattr(worlds, "uuid4", lambda: next(made))
    world.subscribe("a", "order.placed")
    world.subscribe("b", "order.placed")
    world.publish()
    world.publish("user.created", queue="q")
    world.die(world.claim()[0])
    world.publish("user.created", queue="q")
    world.done(world.claim()[0])
    return world


@pytest.mark.parametrize("id", [FIRST, SECOND, OTHER], ids=["pending", "dead", "ended"])
def test_the_last_eight_characters_name_a_message(three: World, id: UUID) -> None:
    named = three.operations.messages.named
    assert named(str(id)) == named(id.hex) == id
    assert named(str(id)[-8:]) == named(str(id)[-8:].upper()) == id
    assert named(str(id)[-17:]) == id  # more of it, with a dash


def test_a_beginning_names_a_message_if_it_is_the_only_one(three: World) -> None:
    named = three.operations.messages.named
    assert named("01b0") == OTHER
    assert named("01a1e164-2605-75af-9fb6-0c") == FIRST
    assert named("01a1e164260575af9fb6aa") == SECOND


def test_of_several_the_candidates_are_shown(three: World) -> None:
    with pytest.raises(UsageError, match="2 messages have an id like 01a1e164: give more of it") as told:
        three.operations.messages.named("01a1e164")
    assert sorted(told.value.details) == [
        f"{FIRST}  2040-05-01 12:00:00  pending in a, order.placed",
        f"{SECOND}  2040-05-01 12:00:00  dead in q, user.created",
    ]


def test_a_beginning_and_an_end_that_are_alike_are_both_candidates(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    like = UUID("01c00000-0000-7000-8000-000001a1e164")
    monkeypatch.setattr(worlds, "uuid4", lambda: like)
    three.publish(queue="q")
    with pytest.raises(UsageError) as told:
        three.operations.messages.named("01a1e164")
    assert {each.split()[0] for each in told.value.details} == {str(FIRST), str(SECOND), str(like)}


def test_no_more_than_ten_candidates_are_shown(world: World) -> None:
    world.subscribe("q", "order.placed")
    for n in range(12):
        worlds_id = UUID(int=0x0AAAAAAA << 96 | n)
        world.sql(
            "insert into holdfast.message (id, type, body) values (:id, 'order.placed', '{}')",
            id=str(worlds_id),
        )
    with pytest.raises(UsageError) as told:
        world.operations.messages.named("0aaaaaaa")
    assert (len(told.value.details), told.value.details[-1]) == (11, "and 2 more")


@pytest.mark.parametrize(
    "text", ["", "12", "order-17", "01a1e164-2605-75af-9fb6-0c11f2c6a7d1ff", "ghijklmn", "----"]
)
def test_what_cannot_be_an_id(three: World, text: str) -> None:
    with pytest.raises(UsageError, match="is not the id of a message: give all of it, its last 8 characters"):
        three.operations.messages.named(text)


def test_nothing_has_it(three: World) -> None:
    with pytest.raises(NotFound, match="none of the newest 1,000,000 ends with it"):
        three.operations.messages.named("deadbeef")
    with pytest.raises(NotFound, match="begins with 0fff: give the whole id"):
        three.operations.messages.named("0fff")


def test_an_id_is_written_with_its_dashes_from_its_end() -> None:
    digits = FIRST.hex
    assert [tail(digits[-n:]) for n in range(1, 33)] == [
        str(FIRST)[-(n + (n > 12) + (n > 16) + (n > 20) + (n > 24)) :] for n in range(1, 33)
    ]
