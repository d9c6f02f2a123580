"""What an operator may do with pending messages."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.message import Flag, Reason
from holdfast.model.work import Outcome
from holdfast.operations import Filter
from holdfast.store.plans import engine
from tests.operations.world import NOON, World

FAILED = int(Flag.FAILED)


# -- finding and looking


def every_state(world: World) -> dict[str, UUID]:
    """One message in each state, in queue q."""
    found = {}
    found["parked"] = world.publish(queue="q")
    world.operations.messages.park(found["parked"])
    found["retrying"] = world.publish(queue="q")
    world.fail(world.claim()[0], 600.0)
    found["suspect"] = world.publish(queue="q")
    world.claim()
    world.clock.advance(seconds=31)
    world.store.run(engine.recover())
    found["leased"] = world.publish("order.leased", "busy", queue="q")
    found["waiting"] = world.publish(stream="busy", queue="q")
    world.claim()
    head, found["blocked"] = world.in_stream(2, "stuck")
    world.operations.messages.park(head)
    found["scheduled"] = world.publish(queue="q", delay=60.0)
    found["ready"] = world.publish(queue="q")
    found["unrouted"] = world.publish("nobody.cares")
    return found


def test_every_state_is_told_apart(world: World) -> None:
    found = every_state(world)
    states = world.states()
    assert {name: states[id] for name, id in found.items()} == {name: name for name in found}
    for state, id in found.items():
        assert id in [each.id for each in world.operations.messages.find(Filter(state=state))]
    assert world.operations.status().states == {**dict.fromkeys(found, 1), "parked": 2}


def test_a_message_handed_out_in_a_run_is_leased_and_a_lapsed_lease_is_a_suspect(world: World) -> None:
    first, second, third = world.in_stream(3)
    assert world.claimed(run=2) == [first, second]
    assert world.states() == {first: "leased", second: "leased", third: "waiting"}
    assert world.one(second).worker == "w1"
    world.clock.advance(seconds=31)
    assert world.states() == {first: "suspect", second: "blocked", third: "blocked"}


def test_find_filters_and_sorts(world: World) -> None:
    world.subscribe("billing", "order.*")
    world.subscribe("mail", "order.placed")
    placed = world.publish("order.placed", "s1")
    paid = world.publish("order.paid", "s2")
    find = world.operations.messages.find
    assert [(each.id, each.queue) for each in find(newest=False)] == [
        (placed, "billing"), (placed, "mail"), (paid, "billing"),
    ]  # fmt: skip
    assert [each.id for each in find(limit=1)] == [paid]
    assert [each.queue for each in find(Filter(type="order.placed"), newest=False)] == ["billing", "mail"]
    assert [each.id for each in find(Filter(stream="s2"))] == [paid]
    assert [each.id for each in find(Filter(queue="mail"))] == [placed]
    assert [each.queue for each in find(Filter(id=placed, queue="mail"))] == ["mail"]
    with pytest.raises(UsageError, match="no state 'lost'"):
        Filter(state="lost")


@pytest.mark.covers("W87", "W88", "W89")
def test_show_knows_everything_about_a_message(world: World) -> None:
    id = world.publish(queue="q", body='{"total": 7}', headers='{"a": "b"}', subject="o/1", dedupe="k")
    world.fail(world.claim()[0], 60.0, Reason.TRANSPORT_UNAVAILABLE, "no route")
    world.clock.advance(seconds=60)
    world.fail(world.claim()[0], 120.0, Reason.HANDLER_EXCEPTION, "boom")
    ((delivery, content),) = world.operations.messages.show(id).pending
    assert (delivery.attempts, delivery.failures, delivery.error) == (2, 2, "boom")
    assert delivery.claimable_at == NOON + timedelta(seconds=180)
    assert delivery.reason is Reason.HANDLER_EXCEPTION
    assert (content.body, content.headers, content.dedupe) == ('{"total": 7}', '{"a": "b"}', "k")
    assert [(each.at, each.reason, each.text) for each in content.errors] == [
        (NOON, Reason.TRANSPORT_UNAVAILABLE, "no route"),
        (NOON + timedelta(seconds=60), Reason.HANDLER_EXCEPTION, "boom"),
    ]


def test_show_gathers_all_deliveries_pending_dead_and_ended(world: World) -> None:
    for queue in ("a", "b", "c"):
        world.subscribe(queue, "order.placed")
    id = world.publish()
    world.done(world.claim("a")[0])
    world.die(world.claim("b", name="w2")[0])
    shown = world.operations.messages.show(id)
    assert [each.queue for each, _ in shown.pending] == ["c"]
    assert [(each.queue, content.body) for each, content in shown.dead] == [("b", '{"n": 1}')]
    assert [(each.queue, each.outcome) for each in shown.ended] == [("a", "done")]


def test_unknown_and_impossible_ids(world: World) -> None:
    with pytest.raises(NotFound, match="no message"):
        world.operations.messages.show(uuid4())
    with pytest.raises(NotFound, match="no message"):
        world.operations.messages.retry(uuid4())
    with pytest.raises(UsageError, match="not the id of a message"):
        world.operations.messages.retry("12")
    id = world.publish(queue="q")
    with pytest.raises(NotFound, match="in queue other"):
        world.operations.messages.retry(id, queue="other")
    world.done(world.claim()[0])
    with pytest.raises(NotFound, match="ended as done"):
        world.operations.messages.park(id)
    dead = world.publish(queue="q")
    world.die(world.claim()[0])
    with pytest.raises(NotFound, match="dead redrive"):
        world.operations.messages.retry(dead)


# -- retry


@pytest.mark.covers("W98")
def test_retry_makes_a_message_claimable_now(world: World) -> None:
    id = world.publish(queue="q")
    world.fail(world.claim()[0], 600.0)
    assert world.claimed() == []
    before = world.one(id)
    (changed,) = world.operations.messages.retry(id)
    assert (changed.id, changed.queue, changed.what) == (id, "q", "claimable now")
    after = world.one(id)
    assert (after.attempts, after.failures, after.status) == (1, 1, 1 | FAILED)
    assert after.epoch > before.epoch
    (leased,) = world.claim()
    assert (leased.message.id, leased.attempt) == (id, 2)


@pytest.mark.covers("W92", "X46", "X47")
def test_reset_forgets_the_counters_and_failed_but_no_progress_and_no_epoch(world: World) -> None:
    id = world.publish(queue="q")
    world.fail(world.claim()[0], 600.0, flags=int(Flag.EVENT_STORED))
    world.operations.messages.retry(id)
    leased = world.claim()[0]
    world.settle(leased, Outcome.AGAIN, delay=600.0, counted=False, refunded=True)
    world.operations.messages.retry(id)
    world.claim()
    world.clock.advance(seconds=31)
    world.store.run(engine.recover())
    before = world.one(id)
    assert (before.attempts, before.failures, before.vanished, before.refunds) == (2, 1, 1, 1)
    world.operations.messages.retry(id, reset=True)
    after = world.one(id)
    assert (after.attempts, after.failures, after.vanished, after.refunds) == (0, 0, 0, 0)
    assert after.status == int(Flag.STORED | Flag.EVENT_STORED)
    assert after.epoch > before.epoch
    assert after.error == "boom"  # the history of errors stays
    assert world.claim()[0].attempt == 1


@pytest.mark.covers("W18")
def test_retry_only_what_failed_for_one_reason(world: World) -> None:
    by_reason: dict[Reason, list[UUID]] = {}
    for number in range(6):
        reason = Reason.TRANSPORT_UNAVAILABLE if number % 2 else Reason.VALIDATION_FAILURE
        by_reason.setdefault(reason, []).append(
            world.publish(stream=f"s{number}" if number > 2 else None, queue="q")
        )
        world.fail(world.claim()[0], 600.0, reason)
    scheduled = world.publish(queue="q", delay=600.0)
    seen: list[int] = []
    many = world.operations.messages.retry_many(
        Filter(reason=Reason.TRANSPORT_UNAVAILABLE), progress=seen.append
    )
    assert (many.changed, many.refused, seen) == (3, (), [3])
    assert sorted(world.claimed()) == sorted(by_reason[Reason.TRANSPORT_UNAVAILABLE])
    assert world.states()[scheduled] == "scheduled"


def test_retry_of_many_leaves_schedules_alone_unless_asked_for(world: World) -> None:
    scheduled = world.publish(queue="q", delay=600.0)
    parked = world.publish(queue="q")
    world.operations.messages.park(parked)
    assert world.operations.messages.retry_many(Filter(queue="q")).changed == 1
    assert world.states() == {scheduled: "scheduled", parked: "ready"}
    assert world.operations.messages.retry_many(Filter(state="scheduled")).changed == 1
    assert world.states() == {scheduled: "ready", parked: "ready"}


def test_retry_of_many_reaches_those_that_wait_behind_others(world: World) -> None:
    _, second = world.in_stream(2)
    world.operations.messages.park(second)
    assert world.operations.messages.retry_many(Filter(state="parked"), reset=True).changed == 1
    assert world.states()[second] == "waiting"


def test_retry_of_one_delivery_leaves_the_others(world: World) -> None:
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    id = world.publish()
    world.operations.messages.park(id)
    assert len(world.operations.messages.retry(id, queue="a")) == 1
    assert {each.queue: each.state for each, _ in world.operations.messages.show(id).pending} == {
        "a": "ready",
        "b": "parked",
    }


def test_retry_of_a_timer_fires_it_now(world: World) -> None:
    id = world.publish(stream="s", queue="q", delay=3600.0)
    assert world.one(id).queue == "holdfast/timer"
    world.operations.messages.retry(id)
    world.claim()
    assert world.one(id).queue == "q"
    assert world.one(id).position is not None


# -- park


@pytest.mark.covers("X4", "W48")
def test_a_parked_head_keeps_its_place_and_blocks_until_retried_or_set_aside(world: World) -> None:
    first, second = world.in_stream(2)
    world.operations.messages.park(first)
    world.clock.advance(days=400)
    assert world.claimed() == []
    assert world.states() == {first: "parked", second: "blocked"}
    assert world.one(first).claimable_at is None
    world.operations.messages.retry(first)
    assert world.claimed(run=2) == [first, second]


@pytest.mark.covers("W62", "X4")
def test_a_failed_message_that_is_parked_is_not_retried(world: World) -> None:
    id = world.publish(queue="q")
    world.fail(world.claim()[0], 60.0)
    world.operations.messages.park(id)
    world.clock.advance(days=400)
    assert world.claimed() == []
    assert world.operations.retry_backlog().count == 0
    assert (world.one(id).state, world.one(id).attempts) == ("parked", 1)


def test_a_parked_message_blocks_when_its_turn_comes(world: World) -> None:
    first, second, third = world.in_stream(3)
    world.operations.messages.park(second)
    (leased,) = world.claim(run=10)
    assert leased.message.id == first
    world.done(leased)
    assert world.claimed() == []
    assert world.states() == {second: "parked", third: "blocked"}
    world.healthy()


# -- cancel


def test_cancel_of_a_pending_head_promotes_the_next(world: World) -> None:
    first, second = world.in_stream(2)
    (changed,) = world.operations.messages.cancel(first)
    assert changed.what == "cancelled"
    assert world.outcome(first) == ["cancelled"]
    assert world.claimed() == [second]
    world.healthy()


def test_cancel_of_a_waiting_message_leaves_the_others_in_order(world: World) -> None:
    first, second, third = world.in_stream(3)
    world.operations.messages.cancel(second)
    assert world.order() == [first, third]
    assert world.claimed(run=5) == [first, third]
    world.healthy()


@pytest.mark.parametrize("how", ["unrouted", "unrouted in a stream", "timer", "scheduled"])
def test_cancel_of_what_is_in_nobodys_hands_yet(world: World, how: str) -> None:
    options = {
        "unrouted": {},
        "unrouted in a stream": {"stream": "s"},
        "timer": {"stream": "s", "queue": "q", "delay": 60.0},
        "scheduled": {"queue": "q", "delay": 60.0},
    }[how]
    id = world.publish(**options)
    world.operations.messages.cancel(id)
    assert world.outcome(id) == ["cancelled"]
    assert world.states() == {}
    world.clock.advance(seconds=61)
    assert world.claimed() == []


def test_cancel_of_a_leased_message_asks_its_worker(world: World) -> None:
    id = world.publish(queue="q")
    (leased,) = world.claim()
    assert not world.asked(leased)
    (changed,) = world.operations.messages.cancel(id)
    assert changed.what == "worker asked to cancel"
    assert world.asked(leased)
    assert world.settle(leased, Outcome.CANCELLED)
    assert world.outcome(id) == ["cancelled"]


def test_cancel_of_a_leased_message_loses_against_an_earlier_settlement(world: World) -> None:
    id = world.publish(queue="q")
    (leased,) = world.claim()
    world.operations.messages.cancel(id)
    assert world.done(leased)
    assert world.outcome(id) == ["done"]


def test_cancel_holds_the_dedupe_key_for_a_while(world: World) -> None:
    id = world.publish(queue="q", dedupe="k")
    world.operations.messages.cancel(id)
    assert world.published(queue="q", dedupe="k").duplicate
    assert world.sql("select count(*) from holdfast.dedupe where ended_at is not null") == [(1,)]


# -- poison


@pytest.mark.covers("W63", "W91", "W97", "C21", "W53")
def test_poison_by_hand_moves_the_head_to_the_dead_letters_and_lets_the_stream_go_on(world: World) -> None:
    first, second = world.in_stream(2)
    world.fail(world.claim()[0], 600.0, Reason.DEPENDENCY_FAILURE, flags=int(Flag.EVENT_STORED))
    (changed,) = world.operations.messages.poison(first, "  the\ncustomer is gone " + "x" * 5000)
    assert changed.what == "dead letter"
    ((letter, content),) = world.operations.dead.show(first)
    assert (letter.reason, letter.last_reason) == (Reason.POISON_MESSAGE, Reason.POISON_MESSAGE)
    assert letter.status == int(Flag.STORED | Flag.EVENT_STORED | Flag.FAILED)
    assert letter.died_at == NOON
    assert not letter.halts
    assert [each.text[:24] for each in content.errors] == ["boom", "the customer is gone xxx"]
    assert len(content.errors[-1].text) == world.settings.error_chars
    assert content.errors[-1].reason is Reason.POISON_MESSAGE
    assert world.claimed() == [second]
    world.healthy()


def test_a_reason_must_be_given(world: World) -> None:
    id = world.publish(queue="q")
    with pytest.raises(UsageError, match="Say why"):
        world.operations.messages.poison(id, "  ")


@pytest.mark.parametrize("options", [{}, {"stream": "s", "queue": "q", "delay": 60.0}])
def test_what_is_in_nobodys_queue_is_not_poison(world: World, options: dict[str, object]) -> None:
    id = world.publish(**options)
    with pytest.raises(Refused, match="cancel it instead"):
        world.operations.messages.poison(id, "why not")


def test_only_the_last_errors_are_kept(world: World) -> None:
    id = world.publish(queue="q")
    world.fail_often(id, 12)
    world.operations.messages.poison(id, "enough")
    ((_, content),) = world.operations.dead.show(id)
    assert len(content.errors) == world.settings.errors_kept
    assert content.errors[-1].text == "enough"


# -- leases


@pytest.mark.parametrize("verb", ["retry", "park", "poison"])
def test_orders_about_a_leased_message_are_refused(world: World, verb: str) -> None:
    id = world.publish(queue="q")
    world.claim()
    with pytest.raises(Refused, match="leased by w1 until 2040-05-01 12:00:30"):
        order(world, verb, id)
    assert world.states() == {id: "leased"}


@pytest.mark.parametrize("verb", ["retry", "park", "poison", "cancel", "release"])
def test_orders_about_a_message_inside_a_run_are_refused(world: World, verb: str) -> None:
    first, second, third = world.in_stream(3)
    world.claim(run=2)
    with pytest.raises(Refused, match=f"handed out together with {first}"):
        order(world, verb, second)
    order(world, verb, third)  # behind the run: nobody holds it
    world.healthy()


@pytest.mark.parametrize("verb", ["retry", "park", "poison", "cancel", "release"])
def test_a_lapsed_lease_is_counted_first_and_its_holder_comes_too_late(world: World, verb: str) -> None:
    first, second = world.in_stream(2)
    (leased, _) = world.claim(run=2)
    world.clock.advance(seconds=31)
    order(world, verb, second)
    if verb in ("retry", "park", "release"):
        assert (world.one(second).attempts, world.one(second).vanished) == (1, 1)
    assert (world.one(first).attempts, world.one(first).vanished) == (1, 1)
    assert not world.done(leased)
    assert world.states()[first] == "suspect"
    world.healthy()


def test_a_refusal_in_one_queue_does_not_stop_the_order_in_another(world: World) -> None:
    for queue in ("a", "b"):
        world.subscribe(queue, "order.placed")
    id = world.publish()
    world.claim("a")
    with pytest.raises(Refused, match=r"in queue a is leased.*Done in b"):
        world.operations.messages.park(id)
    assert {each.queue: each.state for each, _ in world.operations.messages.show(id).pending} == {
        "a": "leased",
        "b": "parked",
    }


@pytest.mark.parametrize("verb", ["retry", "park", "poison", "release", "halt", "set aside"])
def test_every_order_raises_the_epoch_of_what_it_changes(world: World, verb: str) -> None:
    first, _ = world.in_stream(2)
    before = world.one(first).epoch
    match verb:
        case "halt":
            world.operations.streams.halt("q", "s", "wait")
        case "set aside":
            world.operations.streams.set_aside("q", "s")
        case _:
            order(world, verb, first)
    if verb == "poison":
        assert world.operations.dead.list()[0].epoch > before
    else:
        assert world.one(first).epoch > before


def order(world: World, verb: str, id: UUID) -> None:
    match verb:
        case "retry":
            world.operations.messages.retry(id)
        case "park":
            world.operations.messages.park(id)
        case "cancel":
            world.operations.messages.cancel(id)
        case "poison":
            world.operations.messages.poison(id, "by hand")
        case "release":
            world.operations.streams.release(id)
