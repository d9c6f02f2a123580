"""The order of messages in an operator's hands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import NotFound, Refused
from holdfast.model.message import Reason
from holdfast.model.work import Outcome
from holdfast.store.plans import engine
from tests.operations.world import NOON, World

# -- what a failed head holds up, and what lets the rest go on


@pytest.mark.covers("W46", "X1")
def test_matrix_1_behind_a_head_that_waits_for_its_retry_nothing_is_claimable(world: World) -> None:
    first, second = world.in_stream(2)
    world.fail(world.claim()[0], 60.0)
    assert world.claimed() == []
    world.clock.advance(seconds=60)
    assert world.claimed(run=2) == [first, second]


@pytest.mark.covers("W47", "X1")
def test_matrix_2_a_released_message_is_claimable_while_the_head_waits_for_its_retry(world: World) -> None:
    first, second = world.in_stream(2)
    world.fail(world.claim()[0], 60.0)
    (changed,) = world.operations.streams.release(second)
    assert changed.what == "released"
    assert world.claimed() == [second]
    assert world.states()[first] == "retrying"
    world.healthy()


@pytest.mark.covers("W48", "X1")
def test_matrix_3_a_released_message_is_claimable_while_the_head_is_parked(world: World) -> None:
    first, second = world.in_stream(2)
    world.fail(world.claim()[0], 60.0)
    world.operations.messages.park(first)
    world.operations.streams.release(second)
    assert world.claimed() == [second]
    world.healthy()


@pytest.mark.covers("W49", "X1")
def test_matrix_4_behind_a_leased_head_nothing_is_claimable(world: World) -> None:
    world.in_stream(2)
    world.claim(run=1)
    assert world.claimed(name="w2") == []


@pytest.mark.covers("W50", "X1")
def test_matrix_5_behind_a_done_head_the_next_is_claimable(world: World) -> None:
    _, second = world.in_stream(2)
    world.done(world.claim()[0])
    assert world.claimed() == [second]


@pytest.mark.covers("W52", "X1")
def test_selective_release_keeps_those_between_blocked(world: World) -> None:
    first, second, third, fourth = world.in_stream(4)
    world.fail(world.claim()[0], 60.0)
    world.operations.streams.release(third)
    assert world.claimed() == [third]
    assert world.states() == {first: "retrying", second: "blocked", third: "leased", fourth: "blocked"}
    assert world.order() == [first, second, fourth]
    world.clock.advance(seconds=60)
    assert world.claimed(run=9) == [first, second, fourth]
    world.healthy()


@pytest.mark.covers("W51", "W93", "W99")
def test_set_aside_lets_everything_downstream_go_on_in_order(world: World) -> None:
    first, second, third = world.in_stream(3)
    world.fail(world.claim()[0], 60.0)
    changed = world.operations.streams.set_aside("q", "s")
    assert (changed.id, changed.what) == (first, "set aside")
    fourth = world.publish(stream="s", queue="q")
    assert world.claimed(run=9) == [second, third, fourth]
    assert world.states()[first] == "retrying"
    assert world.one(first).claimable_at == NOON + timedelta(seconds=60)
    world.clock.advance(seconds=60)
    assert first in world.claimed(name="w2")  # on its own, beside the head
    world.healthy()


@pytest.mark.covers("W53", "W65")
def test_poison_by_hand_releases_what_is_downstream(world: World) -> None:
    first, second, third, fourth = world.in_stream(4)
    world.fail(world.claim()[0], 60.0)
    world.operations.messages.poison(first, "cannot succeed")
    assert world.claimed(run=9) == [second, third, fourth]
    assert [each.id for each in world.operations.dead.list()] == [first]
    world.healthy()


def test_release_of_a_head_is_setting_it_aside(world: World) -> None:
    first, second = world.in_stream(2)
    world.operations.streams.release(first)
    assert sorted(world.claimed()) == sorted([first, second])
    world.healthy()


def test_a_released_message_raises_its_epoch_and_keeps_everything_else(world: World) -> None:
    _, second = world.in_stream(2)
    before = world.one(second)
    world.operations.streams.release(second)
    after = world.one(second)
    assert after.epoch > before.epoch
    assert (after.status, after.attempts, after.failures) == (before.status, before.attempts, before.failures)
    assert (after.stream, after.position, after.head) == ("s", None, True)


def test_what_is_out_of_the_order_cannot_be_released(world: World) -> None:
    first, _ = world.in_stream(2)
    world.operations.streams.release(first)
    with pytest.raises(Refused, match="not in the order"):
        world.operations.streams.release(first)
    with pytest.raises(Refused, match="not in the order"):
        world.operations.streams.release(world.publish(queue="q"))


def test_set_aside_needs_a_head_that_nobody_holds(world: World) -> None:
    with pytest.raises(NotFound, match="no stream"):
        world.operations.streams.set_aside("q", "s")
    first, _ = world.in_stream(2)
    (leased,) = world.claim()
    with pytest.raises(Refused, match="leased by w1"):
        world.operations.streams.set_aside("q", "s")
    world.clock.advance(seconds=31)
    assert world.operations.streams.set_aside("q", "s").id == first
    assert world.one(first).vanished == 1
    assert not world.done(leased)
    (second,) = world.claim()
    world.done(second)
    with pytest.raises(NotFound, match="nothing to set aside"):
        world.operations.streams.set_aside("q", "s")
    world.healthy()


# -- halt and resume


@pytest.mark.covers("X37")
def test_a_halted_stream_waits_until_it_is_resumed(world: World) -> None:
    first, second = world.in_stream(2)
    world.operations.streams.halt("q", "s", "the other side  moves")
    third = world.publish(stream="s", queue="q")
    assert world.claimed() == []
    assert set(world.states().values()) == {"blocked"}
    (state,) = world.operations.streams.blocked()
    assert (state.halted_by, state.halted_at, state.head) == ("operator: the other side moves", NOON, None)
    assert (state.waiting, state.open) == (3, 3)
    assert world.operations.streams.resume("q", "s")
    assert not world.operations.streams.resume("q", "s")
    assert world.claimed(run=9) == [first, second, third]
    world.healthy()


def test_halt_of_an_empty_stream_makes_new_messages_wait(world: World) -> None:
    world.in_stream(1)
    world.done(world.claim()[0])
    world.operations.streams.halt("q", "s", "later")
    id = world.publish(stream="s", queue="q")
    assert world.claimed() == []
    world.operations.streams.resume("q", "s")
    assert world.claimed() == [id]
    world.healthy()


def test_halt_is_refused_while_the_head_is_leased_and_says_how_to_do_it(world: World) -> None:
    world.in_stream(2)
    (leased,) = world.claim()
    with pytest.raises(Refused, match="pause its queue first"):
        world.operations.streams.halt("q", "s", "now")
    world.done(leased)
    world.operations.streams.halt("q", "s", "now")
    assert world.claimed() == []
    with pytest.raises(Refused, match="halted already, by operator: now"):
        world.operations.streams.halt("q", "s", "again")
    world.healthy()


def test_halting_keeps_the_retry_of_the_head(world: World) -> None:
    first, _ = world.in_stream(2)
    world.fail(world.claim()[0], 600.0)
    world.operations.streams.halt("q", "s", "wait")
    world.operations.streams.resume("q", "s")
    assert world.states()[first] == "retrying"
    assert world.one(first).claimable_at == NOON + timedelta(seconds=600)


def test_orders_within_a_halted_stream(world: World) -> None:
    first, second, third, fourth = world.in_stream(4)
    world.die(world.claim()[0], halt=True)
    with pytest.raises(Refused, match=f"halted by {first}"):
        world.operations.streams.set_aside("q", "s")
    world.operations.messages.cancel(second)
    world.operations.streams.release(fourth)
    assert world.claimed() == [fourth]
    assert world.order() == [third]
    world.operations.dead.redrive(first)
    assert world.order() == [first, third]
    assert world.claimed(name="w2", run=9) == [first, third]
    world.healthy()


def test_resume_after_a_death_goes_on_without_the_dead(world: World) -> None:
    first, second = world.in_stream(2)
    world.die(world.claim()[0], halt=True)
    world.operations.streams.resume("q", "s")
    assert world.claimed() == [second]
    world.operations.dead.redrive(first)
    assert world.order() == [second, first]
    world.healthy()


def test_unknown_streams(world: World) -> None:
    for order in (
        lambda: world.operations.streams.halt("q", "s", "x"),
        lambda: world.operations.streams.resume("q", "s"),
        lambda: world.operations.streams.show("q", "s"),
    ):
        with pytest.raises(NotFound, match="no stream s"):
            order()


# -- what is blocked, and by what


@pytest.mark.covers("W94", "W57")
def test_blocked_streams_with_why_and_until(world: World) -> None:
    for name in ("retrying", "scheduled", "parked", "suspect", "halted", "ready", "leased", "single"):
        world.in_stream(1 if name == "single" else 2, name)
    for leased in world.claim():
        match leased.message.stream:
            case "retrying" | "single":
                world.fail(leased, 300.0, Reason.TRANSPORT_UNAVAILABLE, "no route")
            case "scheduled":
                world.settle(leased, Outcome.AGAIN, delay=120.0, counted=False)
            case "halted":
                world.die(leased, halt=True)
            case "suspect":
                pass
            case _:
                world.settle(leased, Outcome.AGAIN, counted=False)
    world.operations.messages.park(world.order("parked")[0])
    world.clock.advance(seconds=31)
    world.store.run(engine.recover())
    report = {leased.message.stream: leased for leased in world.claim()}
    world.settle(report["ready"], Outcome.AGAIN, counted=False)
    world.publish(stream="retrying", queue="q")
    found = {each.stream: each for each in world.operations.streams.blocked()}
    assert set(found) == {"retrying", "scheduled", "parked", "suspect", "halted", "single"}
    assert {name: (each.state, each.waiting) for name, each in found.items()} == {
        "retrying": ("retrying", 2),
        "scheduled": ("scheduled", 1),
        "parked": ("parked", 1),
        "suspect": ("suspect", 1),
        "halted": (None, 1),
        "single": ("retrying", 0),
    }
    retrying = found["retrying"]
    assert retrying.claimable_at == NOON + timedelta(seconds=300)
    assert (retrying.reason, retrying.error, retrying.attempts) == (
        Reason.TRANSPORT_UNAVAILABLE,
        "no route",
        1,
    )
    assert retrying.since == NOON
    assert retrying.is_growing
    assert not found["single"].is_growing
    assert found["halted"].since == NOON
    assert world.operations.streams.blocked()[0].stream == "retrying"  # most behind it
    everything = world.operations.streams.list()
    assert {each.stream for each in everything} == {*found, "ready", "leased"}
    assert {each.state for each in everything if each.stream == "leased"} == {"leased"}


@pytest.mark.covers("W95", "W96")
def test_the_message_that_blocks_a_stream_and_whether_it_is_poison(world: World) -> None:
    first, _ = world.in_stream(2)
    world.fail_often(first, 9)
    found = world.operations.streams.blocking_message("q", "s")
    assert found.delivery is not None
    assert (found.delivery.id, found.delivery.attempts, found.is_poison) == (first, 9, False)
    world.fail_often(first, 1)
    found = world.operations.streams.blocking_message("q", "s")
    assert found.delivery is not None
    assert (found.delivery.id, found.delivery.attempts, found.is_poison) == (first, 10, True)


@pytest.mark.covers("W95")
def test_a_dead_letter_that_blocks_a_stream(world: World) -> None:
    first, _ = world.in_stream(2)
    world.die(world.claim()[0], halt=True)
    found = world.operations.streams.blocking_message("q", "s")
    assert found.letter is not None
    assert (found.letter.id, found.letter.halts, found.delivery) == (first, True, None)
    world.operations.streams.resume("q", "s")
    assert world.operations.streams.blocking_message("q", "s").letter is None


@pytest.mark.covers("W36")
def test_show_puts_the_order_first_and_what_left_it_last(world: World) -> None:
    first, second, third = world.in_stream(3)
    world.operations.streams.release(first)
    shown = world.operations.streams.show("q", "s")
    assert [each.id for each in shown.messages] == [second, third, first]
    assert shown.state is not None
    assert shown.state.head == second
    assert [each.id for each in world.operations.streams.show("q", "s", limit=1).messages] == [second]
