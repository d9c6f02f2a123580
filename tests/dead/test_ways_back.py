"""Redriven by filter: rehearsed, behind a canary, spread over time; held, edited, discarded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn
from uuid import UUID

import pytest

from holdfast.errors import InvalidMessage, NotFound, Refused, UsageError
from holdfast.operations import Filter
from holdfast.store.plans import dead
from tests.operations.world import NOON, World

QUICK = 0.4  # seconds of patience where nothing will come


def die(world: World, count: int, stream: str | None = None) -> list[UUID]:
    ids = [world.publish(stream=stream, queue="q") for _ in range(count)]
    for _ in range(count):
        world.die(world.claim(total=1)[0])
    return ids


# -- many


@pytest.mark.covers("X3")
def test_selected_ones_come_back_and_a_rehearsal_changes_nothing(world: World) -> None:
    one, two, three = die(world, 3)
    dead = world.operations.dead
    dead.hold(three, "mine")
    told = dead.rehearse(Filter())
    assert (told.count, told.held, [group.count for group in told.groups]) == (2, 1, [2])
    assert len(dead.list()) == 3
    assert world.claimed() == []
    assert dead.redrive_many(Filter(ids=(one, three))).changed == 1
    assert world.claimed() == [one]
    assert {each.id for each in dead.list()} == {two, three}


def test_they_are_spread_evenly_and_keep_the_order_of_their_stream(world: World) -> None:
    in_stream = die(world, 4, "s")
    loose = die(world, 4)
    assert world.operations.dead.redrive_many(Filter(), over=80.0).changed == 8
    due = {each.id: each.claimable_at for each in world.operations.messages.find(limit=100)}
    assert [due[id] for id in (*in_stream, *loose)] == [NOON + timedelta(seconds=10 * n) for n in range(8)]
    assert world.order() == in_stream
    came = []
    for _ in range(9):
        for leased in world.claim(run=10):
            came.append(leased.message.id)
            world.done(leased)
        world.clock.advance(seconds=10)
    assert came == [*in_stream, *loose]
    world.healthy()


def test_more_than_a_batch_comes_back_and_nobody_is_left_out(world: World) -> None:
    ids = [world.publish(queue="q") for _ in range(450)]
    for leased in world.claim(total=500):
        world.die(leased)
    seen: list[int] = []
    assert world.operations.dead.redrive_many(Filter(queue="q"), progress=seen.append).changed == 450
    assert seen == [200, 400, 450]
    assert sorted(world.claimed(total=500)) == sorted(ids)


# -- canary


@contextmanager
def working(world: World, *, well: bool) -> Iterator[None]:
    """Somebody handles what comes back."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            for leased in world.claim():
                if well:
                    world.done(leased)
                else:
                    world.die(leased)

    world.worker()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_after_a_canary_that_ends_well_the_others_follow(world: World) -> None:
    die(world, 6)
    with working(world, well=True):
        done = world.operations.dead.redrive_many(Filter(), canary=2)
    assert done.changed == 6
    assert done.canary is not None
    assert (done.canary.tried, done.canary.ended, done.canary.died, done.canary.pending) == (2, 2, 0, 0)
    assert world.operations.dead.list() == []


def test_after_a_canary_that_dies_the_others_stay(world: World) -> None:
    die(world, 6)
    with working(world, well=False):
        done = world.operations.dead.redrive_many(Filter(), canary=2)
    assert done.canary is not None
    assert not done.canary.is_well
    assert (done.changed, done.canary.tried, done.canary.died >= 1) == (2, 2, True)
    assert world.operations.dead.count(Filter(redriven=False)) == 4


def test_a_canary_that_nobody_handles_lets_nobody_follow(world: World) -> None:
    die(world, 3)
    clock = world.store.clock
    timer = threading.Timer(QUICK, lambda: clock.advance(seconds=60))  # type: ignore[union-attr]
    timer.start()
    done = world.operations.dead.redrive_many(Filter(), canary=1, patience=30.0)
    timer.join()
    assert done.canary is not None
    assert (done.changed, done.canary.pending, done.canary.is_well) == (1, 1, False)
    assert world.operations.dead.count() == 2


# -- hold


def test_a_held_letter_stays_until_it_is_let_go(world: World) -> None:
    id, other = die(world, 2)
    dead = world.operations.dead
    assert [each.what for each in dead.hold(id, " the auditor\nwants it ")] == ["held: the auditor wants it"]
    ((letter, _),) = dead.show(id)
    assert (letter.held_at, letter.held_why) == (NOON, "the auditor wants it")
    assert dead.redrive_many(Filter()).changed == 1
    assert world.claimed() == [other]
    for order in (dead.redrive, lambda each: dead.discard(each, "why not")):
        with pytest.raises(Refused, match=r"is held since 2040-05-01 12:00 UTC \(the auditor wants it"):
            order(id)
    with pytest.raises(Refused, match="not redriven"):
        dead.redrive_many(Filter(held=True))
    with pytest.raises(UsageError, match="Say why"):
        dead.hold(id, " ")
    dead.unhold(id)
    assert dead.show(id)[0][0].held_at is None
    dead.redrive(id)
    assert world.claimed() == [id]
    with pytest.raises(NotFound):
        dead.hold(id, "too late")


# -- edit


def test_an_edited_letter_comes_back_with_its_new_body_and_keeps_the_old_one(world: World) -> None:
    (id,) = die(world, 1)
    dead = world.operations.dead
    (changed,) = dead.edit(id, '{"n": 2}')
    assert changed.what == "edited"
    dead.edit(id, '{"n": 3}')
    ((letter, content),) = dead.show(id)
    assert (content.body, [death.body for death in content.deaths]) == ('{"n": 3}', ['{"n": 1}'])
    dead.redrive(id)
    (leased,) = world.claim()
    assert leased.message.body == '{"n": 3}'
    assert leased.epoch > letter.epoch
    ((_, pending),) = world.operations.messages.show(id).pending
    assert [death.body for death in pending.deaths] == ['{"n": 1}']
    world.clock.advance(seconds=1)
    world.die(leased)
    dead.edit(id, "4", redrive=True)
    (again,) = world.claim()
    assert again.message.body == "4"
    ((_, pending),) = world.operations.messages.show(id).pending
    assert [death.body for death in pending.deaths] == ['{"n": 1}', '{"n": 3}']


def test_a_body_that_could_not_be_published_is_refused_before_anything_is_stored(world: World) -> None:
    (id,) = die(world, 1)
    for wrong in ("{broken", '{"a": 1, "a": 2}', "", '"' + "x" * 2_000_000 + '"'):
        with pytest.raises(InvalidMessage):
            world.operations.dead.edit(id, wrong, redrive=True)
    ((_, content),) = world.operations.dead.show(id)
    assert (content.body, content.deaths[0].body) == ('{"n": 1}', None)
    world.operations.dead.hold(id, "mine")
    with pytest.raises(Refused, match="is held"):
        world.operations.dead.edit(id, "2", redrive=True)
    assert world.operations.dead.show(id)[0][1].body == '{"n": 1}'


def test_an_edit_with_a_redrive_is_one_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in our own closing note: two transactions left a letter edited and still dead after a crash."""
    (id,) = die(world, 1)

    def fails(*_: object) -> NoReturn:
        raise RuntimeError("the machine went away")

    monkeypatch.setattr(dead, "redrive", fails)
    with pytest.raises(RuntimeError):
        world.operations.dead.edit(id, "2", redrive=True)
    ((_, content),) = world.operations.dead.show(id)
    assert (content.body, content.deaths[0].body) == ('{"n": 1}', None)


# -- discard


def test_why_it_was_discarded_is_kept(world: World) -> None:
    (id,) = die(world, 1)
    world.operations.dead.discard(id, "a test order")
    (ended,) = world.operations.messages.show(id).ended
    assert (ended.outcome, ended.why) == ("discarded", "a test order")
    assert world.operations.why(id)[0].endswith(": a test order.")
