"""Which messages were late, which are stuck, and in which outage: questions about the past and the present."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from holdfast import Holdfast, UsageError
from holdfast.clock import MovableClock
from holdfast.model.message import Reason
from holdfast.operations import Filter
from tests.operations.world import NOON, World


def handled(world: World, late: float, queue: str = "q", **options: object) -> UUID:
    """A message that begins so many seconds after it was due, and is done at once."""
    id = world.publish(queue=queue, due_at=world.clock.instant - timedelta(seconds=late), **options)
    (leased,) = world.claim(queue, name=f"of {queue}")
    world.done(leased)
    return id


@pytest.mark.covers("B55", "B56", "X41")
def test_those_that_began_late_the_latest_first(world: World) -> None:
    grace = world.settings.late
    assert grace == 300
    handled(world, 300)  # exactly the grace is not late
    some = handled(world, 301, subject="user-1")
    most = handled(world, 7200, "r", stream="s")
    handled(world, 10)
    found = world.operations.messages.ended(late=grace)
    assert [(each.id, each.lateness) for each in found] == [(most, 7200.0), (some, 301.0)]
    first = found[0]
    assert (first.queue, first.stream, first.outcome, first.outage) == ("r", "s", "done", None)
    assert (first.due_at, first.started_at) == (NOON - timedelta(hours=2), NOON)
    assert found[1].subject == "user-1"
    assert [each.id for each in world.operations.messages.ended(Filter(queue="q"), late=grace)] == [some]
    assert len(world.operations.messages.ended(since=NOON)) == 4
    assert len(world.operations.messages.ended(since=NOON, limit=3)) == 3
    assert [each.id for each in world.operations.messages.ended(Filter(subject="user-1"))] == [some]


@pytest.mark.covers("B31")
def test_every_fact_of_an_event_can_be_read(world: World) -> None:
    """Its id, user, target time, status, version, attempts, last error, when it was changed and when it was done."""
    due = world.clock.instant - timedelta(minutes=10)
    id = world.publish(queue="q", due_at=due, subject="user-17")
    (pending, content) = world.operations.messages.show(id).pending[0]
    assert (pending.id, pending.subject, pending.due_at) == (id, "user-17", due)
    assert (pending.state, pending.attempts, pending.error, content.errors) == ("ready", 0, None, ())

    (leased,) = world.claim("q")
    (held, _) = world.operations.messages.show(id).pending[0]
    assert (held.state, held.until is not None, leased.epoch) == ("leased", True, pending.epoch + 1)
    world.fail(leased, 60.0)
    (failed, content) = world.operations.messages.show(id).pending[0]
    assert (failed.state, failed.attempts, failed.failures) == ("retrying", 1, 1)
    assert failed.epoch == pending.epoch + 1  # its version: whoever writes must know it
    assert failed.error == content.errors[-1].text != ""
    assert content.errors[-1].at == world.clock.instant  # when it was changed last

    world.clock.advance(minutes=2)
    (leased,) = world.claim("q")
    world.done(leased)
    found = world.operations.messages.show(id)
    assert found.pending == ()
    (ended,) = found.ended
    assert (ended.outcome, ended.subject, ended.due_at, ended.attempts) == ("done", "user-17", due, 2)
    # When it was executed.
    assert (ended.started_at, ended.ended_at) == (
        world.clock.instant,
        world.clock.instant,
    )


def test_what_was_never_started_is_not_late(world: World) -> None:
    id = world.publish(queue="q", due_at=NOON - timedelta(days=1))
    world.operations.messages.cancel(id)
    (found,) = world.operations.messages.ended(since=NOON)
    assert (found.outcome, found.started_at, found.lateness) == ("cancelled", None, None)
    assert world.operations.messages.ended(late=0) == []


def test_since_a_moment(world: World) -> None:
    handled(world, 600)
    world.clock.advance(hours=1)
    second = handled(world, 600)
    since = world.clock.instant - timedelta(minutes=1)
    assert [each.id for each in world.operations.messages.ended(late=300, since=since)] == [second]


@pytest.mark.covers("B56")
def test_a_hundred_are_shown(world: World) -> None:
    for n in range(101):
        world.publish(queue="q", due_at=NOON - timedelta(seconds=1000 + n))
    for leased in world.claim(total=200):
        world.done(leased)
    found = world.operations.messages.ended(late=300)
    assert len(found) == 100
    assert [each.lateness for each in found] == [1100.0 - n for n in range(100)]


@pytest.mark.parametrize(
    ("filter", "options"),
    [
        (Filter(state="ready"), {}),
        (Filter(reason=2), {}),
        (Filter(), {}),
        (Filter(), {"late": -1.0}),
        (Filter(), {"late": float("nan")}),
        (Filter(), {"late": float("inf")}),
        (Filter(), {"since": NOON.replace(tzinfo=None)}),
    ],
)
def test_nonsense_is_refused(world: World, filter: Filter, options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        world.operations.messages.ended(filter, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        world.operations.messages.stuck(older=-1.0)
    with pytest.raises(UsageError):
        world.operations.messages.stuck(older=1e18)


@pytest.mark.covers("B57")
def test_what_is_stuck_with_attempts_error_and_age(world: World) -> None:
    failed = world.publish(queue="q", due_at=NOON - timedelta(hours=2))
    world.fail(world.claim()[0], 60.0, Reason.TRANSPORT_UNAVAILABLE, "mail.example.com refused")
    waits = world.publish(queue="q", due_at=NOON - timedelta(hours=1))
    young = world.publish(queue="q", due_at=NOON - timedelta(minutes=59))
    world.publish(queue="q", due_at=NOON + timedelta(hours=3))
    in_hand = world.publish(queue="r", due_at=NOON - timedelta(hours=9))
    world.claim("r", name="of r")
    found = world.operations.messages.stuck()
    assert [(each.delivery.id, each.age) for each in found] == [(failed, 7200.0), (waits, 3600.0)]
    assert (found[0].delivery.state, found[0].delivery.attempts) == ("retrying", 1)
    assert found[0].delivery.error == "mail.example.com refused"
    assert found[1].delivery.state == "ready"
    assert [each.delivery.id for each in world.operations.messages.stuck(older=3500)][-1] == young
    assert world.operations.messages.stuck(queue="r") == []
    world.clock.advance(minutes=1)  # the lease has lapsed: nobody has it in hand
    assert [each.delivery.id for each in world.operations.messages.stuck(queue="r")] == [in_hand]
    assert len(world.operations.messages.stuck(limit=1)) == 1


@pytest.mark.covers("B58")
def test_the_outage_in_which_it_was_late_is_named(url: str) -> None:
    clock = MovableClock(NOON)
    app = Holdfast(url, clock=clock)
    app.migrate()

    @app.handler("greeting", name="greet")
    async def greet(body: dict[str, str]) -> None: ...

    def work() -> None:
        asyncio.run(app.worker(until_idle=True).run())
        app.operations.outages.end()

    work()
    app.publish("greeting", {}, at=NOON + timedelta(hours=1))
    clock.advance(days=1)
    work()
    clock.advance(hours=1)
    app.publish("greeting", {}, at=clock.instant - timedelta(hours=2))  # late, but nobody was missing
    work()
    found = app.operations.messages.ended(late=app.settings.late)
    assert [(each.lateness, each.outage) for each in found] == [(23 * 3600.0, 1), (7200.0, None)]
    app.close()
