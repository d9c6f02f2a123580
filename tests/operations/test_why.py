"""Why a message is where it is: one sentence for each delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Holdfast
from holdfast.model.message import Reason
from holdfast.model.work import Outcome
from holdfast.operations import Operations
from holdfast.store.plans import breakers, engine, slots
from tests.operations.world import World


def why(world: World, id: UUID) -> str:
    (sentence,) = world.operations.why(id)
    return sentence


@pytest.fixture
def busy(world: World) -> World:
    """Somebody takes from the queue."""
    world.worker("w1")
    return world


def test_unknown(world: World) -> None:
    id = uuid4()
    assert why(world, id) == (
        f"Unknown: no message {id} is pending or dead, and none ended within the 7 days of the history."
    )


def test_ready(busy: World) -> None:
    ids = [busy.publish(queue="q") for _ in range(3)]
    assert why(busy, ids[0]) == "In queue q: ready since 12:00:00 UTC: it is the next one of its queue."
    assert why(busy, ids[1]) == "In queue q: ready since 12:00:00 UTC: 1 older message is ahead of it."
    assert why(busy, ids[2]) == "In queue q: ready since 12:00:00 UTC: 2 older messages are ahead of it."
    busy.claim(total=1)
    assert why(busy, ids[2]) == "In queue q: ready since 12:00:00 UTC: 1 older message is ahead of it."


def test_many_ahead(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.explain.AHEAD_MAX", 2)
    ids = [busy.publish(queue="q") for _ in range(4)]
    assert why(busy, ids[3]).endswith("more than 1 older messages are ahead of it.")


def test_no_worker_and_a_paused_queue_come_before_ready(world: World) -> None:
    world.subscribe("q", "order.placed")
    id = world.publish()
    assert why(world, id) == "In queue q: no live worker takes from queue q."
    world.worker("w1")
    world.operations.by("anna").queues.pause("q", "the printer is broken")
    assert (
        why(world, id) == "In queue q: queue q is paused since 12:00:00 UTC by anna (the printer is broken)."
    )


def test_a_closer_cause_comes_before_the_queue(world: World) -> None:
    world.subscribe("q", "order.placed")
    id = world.publish(delay=60.0)
    world.operations.by("anna").queues.pause("q")
    assert why(world, id) == (
        "In queue q: scheduled until 12:01:00 UTC. Queue q is paused since 12:00:00 UTC by anna. "
        "No live worker takes from queue q."
    )


def test_scheduled_another_day(busy: World) -> None:
    id = busy.publish(queue="q", delay=86_400.0)
    assert why(busy, id) == "In queue q: scheduled until 2040-05-02 12:00:00 UTC."


def test_a_timer(busy: World) -> None:
    id = busy.publish(stream="s", queue="q", delay=60.0)
    assert why(busy, id) == "In queue holdfast/timer: scheduled until 12:01:00 UTC; it enters stream s then."


def test_leased_and_behind_a_leased_one(busy: World) -> None:
    first, second, third = busy.in_stream(3)
    busy.claim(run=2)
    assert why(busy, first) == "In queue q: leased by w1 until 12:00:30 UTC (attempt 1)."
    assert (
        why(busy, second)
        == f"In queue q: leased by w1 until 12:00:30 UTC (attempt 1, in a run with {first})."
    )
    assert (
        why(busy, third)
        == f"In queue q: waits for {first} of stream s, which is leased by w1 until 12:00:30 UTC."
    )


def test_retrying_and_behind_one_that_retries(busy: World) -> None:
    first, second = busy.in_stream(2)
    busy.fail(busy.claim()[0], 240.0, Reason.TRANSPORT_UNAVAILABLE, "ConnectionError: refused")
    assert why(busy, first) == (
        "In queue q: retry 1 at 12:04:00 UTC after transport unavailable: ConnectionError: refused."
    )
    assert why(busy, second) == (
        f"In queue q: waits for {first} of stream s until 12:04:00 UTC: its retry 1 after "
        "transport unavailable: ConnectionError: refused."
    )


def test_parked_and_behind_one_that_is_parked(busy: World) -> None:
    first, second = busy.in_stream(2)
    busy.operations.messages.park(first)
    assert (
        why(busy, first)
        == f"In queue q: parked: it waits until an operator says `holdfast messages retry {first}`."
    )
    assert why(busy, second) == (
        f"In queue q: waits for {first} of stream s, which is parked: retry it, or set it aside."
    )


def test_suspects_and_behind_them(busy: World) -> None:
    first, second = busy.in_stream(2)
    busy.claim()
    busy.clock.advance(seconds=31)
    busy.worker("w2")
    assert why(busy, first) == (
        "In queue q: the lease of w1 lapsed at 12:00:30 UTC: the next worker that looks takes it over."
    )
    busy.store.run(engine.recover())
    assert why(busy, first) == (
        "In queue q: suspect: its last hand-over never came back, so it waits for the quarantine of a worker."
    )
    assert why(busy, second) == (
        f"In queue q: waits for {first} of stream s, a suspect that waits for the quarantine: "
        "its last hand-over never came back."
    )
    busy.claim_suspect()
    busy.clock.advance(seconds=31)
    busy.store.run(engine.recover())
    busy.worker("w3")
    assert "its last 2 hand-overs never came back" in why(busy, first)


def test_behind_a_ready_one(busy: World) -> None:
    first, second = busy.in_stream(2)
    assert why(busy, second) == f"In queue q: waits for {first} of stream s, which is ready."


def test_behind_a_scheduled_one(busy: World) -> None:
    first, second = busy.in_stream(2)
    busy.settle(busy.claim()[0], Outcome.AGAIN, delay=60.0, counted=False)
    assert (
        why(busy, second) == f"In queue q: waits for {first} of stream s until 12:01:00 UTC: it is scheduled."
    )


def test_halted_by_a_dead_letter_and_by_an_operator(busy: World) -> None:
    first, second = busy.in_stream(2)
    busy.die(busy.claim()[0], halt=True)
    assert why(busy, second) == (
        f"In queue q: waits: stream s is halted by dead letter {first} since 12:00:00 UTC; "
        "redrive that message or resume the stream."
    )
    assert why(busy, first) == (
        "In queue q: dead since 12:00:00 UTC, poison message (the last failure: handler exception), after 1 attempt; "
        f"`holdfast dead redrive {first}` brings it back. Its error: the end. Stream s is halted until then."
    )
    busy.operations.streams.resume("q", "s")
    busy.operations.streams.halt("q", "s", "migration")
    assert why(busy, second) == (
        "In queue q: waits: stream s is halted by an operator since 12:00:00 UTC (migration); resume the stream."
    )


def test_unrouted(world: World) -> None:
    id = world.publish("nobody.cares")
    assert why(world, id) == (
        "Unrouted since 12:00:00 UTC: nobody subscribes to nobody.cares; the first one that does gets it."
    )
    world.operations.messages.cancel(id)
    assert why(world, id) == "Unrouted: cancelled at 12:00:00 UTC."


def test_each_delivery_gets_its_sentence(world: World) -> None:
    for queue in ("a", "b", "c", "d"):
        world.subscribe(queue, "order.placed")
    id = world.publish()
    world.done(world.claim("a", name="wa")[0])
    world.die(
        world.claim("b", name="wb")[0], reason=Reason.VALIDATION_FAILURE, last=Reason.VALIDATION_FAILURE
    )
    world.operations.messages.cancel(id, queue="c")
    world.worker("wd", "d")
    assert world.operations.why(str(id)) == [
        "In queue d: ready since 12:00:00 UTC: it is the next one of its queue.",
        f"In queue b: dead since 12:00:00 UTC, validation failure, after 1 attempt; "
        f"`holdfast dead redrive {id}` brings it back. Its error: the end.",
        "In queue a: done at 12:00:00 UTC after 1 attempt.",
        "In queue c: cancelled at 12:00:00 UTC.",
    ]
    world.operations.dead.discard(id, "wrong")
    assert "In queue b: discarded at 12:00:00 UTC: wrong." in world.operations.why(id)


# -- what the handler of a queue needs or allows


def handled(world: World, **options: Any) -> World:
    """The same world, seen by an application with a handler of queue q."""
    app = Holdfast("sqlite:///:memory:")
    breaker = world.breakers.get(options.pop("breaker")) if "breaker" in options else None

    @app.handler("order.placed", name="q", breaker=breaker, **options)
    async def q() -> None: ...

    return replace(world, operations=Operations(world.store, world.settings, app.handlers))


def fail_calls(world: World, name: str, times: int = 10) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionError), world.breakers.get(name):
            raise ConnectionError


OPENED = "breaker llm is open since 12:00:00 UTC (10 of the last 10 calls failed: ConnectionError)"


def test_an_open_breaker_its_trials_and_an_operators_hand(busy: World) -> None:
    known = handled(busy, breaker="llm")
    id = busy.publish(queue="q")
    assert why(known, id) == "In queue q: ready since 12:00:00 UTC: it is the next one of its queue."
    fail_calls(busy, "llm")
    assert why(known, id) == (
        f"In queue q: {OPENED}: nothing of queue q is claimed before the first trial at 12:00:30 UTC."
    )
    busy.clock.advance(seconds=30)
    assert why(known, id) == (
        f"In queue q: {OPENED}: a trial is due, so the next message of queue q may be one."
    )
    with busy.breakers.get("llm"):
        assert why(known, id) == (
            "In queue q: breaker llm is half open (10 of the last 10 calls failed: ConnectionError): "
            "2 more may begin as trials, and the rest of queue q waits for them."
        )
    busy.operations.breakers.trip("llm", why="the bill is not paid")
    assert why(known, id) == (
        "In queue q: breaker llm is held open by an operator since 12:00:30 UTC (the bill is not paid): "
        "nothing of queue q is claimed until `holdfast breakers reset llm`."
    )
    busy.operations.breakers.reset("llm")
    busy.clock.advance(seconds=6)
    busy.worker("w2")
    assert why(known, id) == (
        "In queue q: ready since 12:00:00 UTC: it is the next one of its queue. Breaker llm has closed 6 s ago: "
        "the backlog is started slowly, 40 a second now for all workers."
    )
    busy.clock.advance(seconds=24)
    busy.worker("w3")
    assert why(known, id) == "In queue q: ready since 12:00:00 UTC: it is the next one of its queue."


def test_a_breaker_of_which_only_the_application_knows_whose_it_is(busy: World) -> None:
    id = busy.publish(queue="q")
    fail_calls(busy, "llm")
    assert why(busy, id) == (
        "In queue q: ready since 12:00:00 UTC: it is the next one of its queue. Breakers: llm is open until "
        "12:00:30 UTC. Only the application knows if queue q needs one: ask with -a MODULE:APP."
    )
    known = handled(busy)
    assert "llm" not in why(known, id)
    busy.settle(busy.claim()[0], Outcome.AGAIN, delay=30.0, counted=False, refunded=True)
    assert why(known, id) == (
        "In queue q: scheduled until 12:00:30 UTC. It was given back before, perhaps because of a breaker: "
        "llm is open until 12:00:30 UTC."
    )


def test_a_rate_that_is_used_up(busy: World) -> None:
    known = handled(busy, rate="30/min")
    id = busy.publish(queue="q")
    ready = "In queue q: ready since 12:00:00 UTC: it is the next one of its queue."
    assert why(known, id) == ready
    take = breakers.take("queue/q", 1, 0.5, 1)
    assert busy.store.run(take) == 1
    assert (
        why(known, id) == f"{ready} Rate queue/q of 30/min is used up: the next message may begin in 2.0 s."
    )
    busy.clock.advance(seconds=2)
    assert why(known, id) == ready


def test_slots_that_are_all_held(busy: World) -> None:
    known = handled(busy, cluster_concurrency=2)
    id = busy.publish(queue="q")
    ready = "In queue q: ready since 12:00:00 UTC: it is the next one of its queue."

    def hold(count: int) -> None:
        holder = (busy.workers["w1"], count, 30.0, ("q",))
        plan = slots.change("queue/q", lambda *_: [holder])
        assert busy.store.run(plan)

    hold(1)
    assert why(known, id) == ready
    hold(2)
    assert why(known, id) == (
        f"{ready} All 2 slots of queue/q are held, by 1 worker: the next begins when one that runs has ended."
    )
    busy.clock.advance(seconds=31)
    busy.worker("w2")
    assert why(known, id) == ready, "that worker has not been seen for a lease"


def test_hands_that_are_full(busy: World) -> None:
    known = handled(busy, concurrency=2)
    ids = [busy.publish(queue="q") for _ in range(3)]
    busy.claim(total=1)
    assert "Hands" not in why(known, ids[2])
    busy.claim(total=1)
    assert why(known, ids[2]) == (
        "In queue q: ready since 12:00:00 UTC: it is the next one of its queue. "
        "Workers are busy: 2 messages of queue q are leased, and its worker runs 2 at once."
    )
    busy.worker("w2")
    assert "Hands" not in why(known, ids[2])


# -- every cause, one line each


def _paused(world: World, id: UUID) -> None:
    world.operations.by("anna").queues.pause("q", "lunch")


def _breaker(world: World, id: UUID) -> None:
    fail_calls(world, "llm")


def _rate(world: World, id: UUID) -> None:
    take = breakers.take("queue/q", 1, 0.5, 1)
    world.store.run(take)


def _leased(world: World, id: UUID) -> None:
    world.claim()


def _lapsed(world: World, id: UUID) -> None:
    world.claim()
    world.clock.advance(seconds=31)
    world.worker("w2")


def _suspect(world: World, id: UUID) -> None:
    _lapsed(world, id)
    world.store.run(engine.recover())


def _fails(world: World, id: UUID) -> None:
    world.fail(world.claim()[0], 60.0, Reason.TIMEOUT_EXCEEDED)


def _dies(world: World, id: UUID) -> None:
    world.die(world.claim()[0])


def _held(world: World, id: UUID) -> None:
    _dies(world, id)
    world.operations.dead.hold(id, "look at it")


def _nothing(world: World, id: UUID) -> None: ...


CAUSES: dict[str, tuple[Callable[[World, UUID], object], dict[str, Any], str]] = {
    "ready": (_nothing, {}, "it is the next one"),
    "due later": (_nothing, {"delay": 60.0}, "scheduled until 12:01:00"),
    "timer": (_nothing, {"delay": 60.0, "stream": "s"}, "it enters stream s then"),
    "paused queue": (_paused, {}, "queue q is paused since 12:00:00 UTC by anna (lunch)"),
    "breaker": (_breaker, {}, "before the first trial at 12:00:30"),
    "rate": (_rate, {}, "Rate queue/q of 30/min is used up"),
    "leased": (_leased, {}, "leased by w1 until 12:00:30"),
    "lapsed": (_lapsed, {}, "the lease of w1 lapsed"),
    "suspect": (_suspect, {}, "waits for the quarantine"),
    "retry": (_fails, {}, "retry 1 at 12:01:00 UTC after timeout exceeded"),
    "parked": (lambda w, id: w.operations.messages.park(id), {}, "parked: it waits until"),
    "halted": (
        lambda w, id: w.operations.streams.halt("q", "s", "migration"),
        {"stream": "s"},
        "halted by an operator since 12:00:00 UTC (migration)",
    ),
    "dead": (_dies, {}, "brings it back"),
    "held": (_held, {}, "look at it"),
    "cancelled": (lambda w, id: w.operations.messages.cancel(id), {}, "cancelled at"),
    "done": (lambda w, id: w.done(w.claim()[0]), {}, "done at 12:00:00 UTC after 1 attempt"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_known(busy: World, cause: str) -> None:
    arrange, options, told = CAUSES[cause]
    known = handled(busy, breaker="llm", rate="30/min", concurrency=1)
    id = busy.publish(queue="q", **options)
    arrange(busy, id)
    assert told in why(known, id)


@pytest.mark.parametrize(
    ("arrange", "told"),
    [
        (_nothing, "which is ready"),
        (_leased, "which is leased by w1"),
        (_suspect, "a suspect that waits for the quarantine"),
        (_fails, "until 12:01:00 UTC: its retry 1 after timeout exceeded"),
        (lambda w, id: w.operations.messages.park(id), "which is parked"),
        (lambda w, id: w.die(w.claim()[0], halt=True), "is halted by dead letter"),
    ],
)
def test_every_cause_before_it_in_its_stream_is_known(
    busy: World, arrange: Callable[[World, UUID], object], told: str
) -> None:
    first, second = busy.in_stream(2)
    arrange(busy, first)
    sentence = why(handled(busy, concurrency=1), second)
    assert told in sentence
    assert str(first) in sentence


def test_nobody_is_there_and_nobody_subscribes(world: World) -> None:
    assert "no live worker takes from queue q" in why(world, world.publish(queue="q"))
    assert "nobody subscribes to nobody.cares" in why(world, world.publish("nobody.cares"))
