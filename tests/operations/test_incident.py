"""What `status` calls a problem: with it the doctor and the exit codes agree."""

from __future__ import annotations

from uuid import uuid4

from holdfast import Holdfast
from holdfast.model.message import NewMessage, Reason
from holdfast.operations import Operations, Status
from holdfast.store.plans import engine
from tests.operations.world import World


def problems(status: Status) -> dict[str, str]:
    return {each.name: each.text for each in status.problems}


def agree(operations: Operations) -> None:
    """Whatever status calls a problem, the doctor finds too, in the same words; loops it names one by one."""
    told = {each.text for each in operations.doctor() if each.severity != "note"}
    assert {each.text for each in operations.status().problems if each.name != "retry-loop"} <= told


def with_app(world: World) -> Operations:
    """The same database as an application sees it that has one handler, behind a breaker."""
    app = Holdfast("sqlite:///unused.db")

    @app.handler("order.placed", name="send", breaker=app.breaker("mail"))
    def send(order: dict[str, int]) -> None: ...

    return Operations(world.store, world.settings, app.handlers)


def test_an_open_breaker_is_a_problem_with_what_it_holds_back(world: World) -> None:
    world.subscribe("send", "order.placed")
    world.worker("w1", "send")
    for _ in range(2):
        world.publish()
    operations = with_app(world)
    assert operations.status().problems == ()
    world.breakers.get("mail")
    world.operations.by("anna").breakers.trip("mail", why="the server burns", seconds=60.0)
    (found,) = operations.status().breakers
    assert (found.name, found.state, found.queues, found.held, found.why) == (
        "mail", "open", ("send",), 2, "the server burns",
    )  # fmt: skip
    assert problems(operations.status())["breaker-open"] == (
        "Breaker mail is open since 12:00:00 UTC (the server burns): it holds back queue send, in which 2 messages "
        "wait."
    )
    agree(operations)
    # With a URL alone nobody knows what needs it; it is open all the same.
    assert "only the application knows" in problems(world.operations.status())["breaker-open"]
    agree(world.operations)


def test_a_breaker_that_is_held_open_names_the_way_back(world: World) -> None:
    world.breakers.get("mail")
    world.operations.by("anna").breakers.trip("mail")
    (found,) = world.operations.status().problems
    assert "`holdfast breakers reset mail`" in found.remedy
    world.operations.by("anna").breakers.reset("mail")
    assert world.operations.status().problems == ()


def test_a_paused_queue_is_shown_with_who_and_why(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.worker("w1")
    world.operations.by("anna").queues.pause("q", "paint")
    world.publish()
    (found,) = world.operations.status().paused
    assert (found.queue, found.who, found.why, found.depth) == ("q", "anna", "paint", 1)
    assert world.operations.status().problems == ()  # somebody wanted it so
    told = {each.name: (each.severity, each.text) for each in world.operations.doctor()}
    assert told["paused-queue"] == ("note", "Queue q is paused since 2040-05-01 12:00:00 UTC by anna: paint.")
    for _ in range(11):  # the worker lives on
        world.clock.advance(seconds=28)
        world.sql("update holdfast.worker set seen_at = :at", at=moment(world))
    assert "which is paused, has been due for 5 minutes" in problems(world.operations.status())["late"]
    world.clock.advance(hours=2)
    assert "has been due for 2 hours" in problems(world.operations.status())["late"]
    world.clock.advance(days=1500)
    assert "has been due for 1,500 days" in problems(world.operations.status())["late"]
    agree(world.operations)


def moment(world: World) -> object:
    from holdfast.clock import micros

    now = world.operations.now()
    return micros(now) if world.store.engine.dialect == "sqlite" else now


def test_silent_workers_that_hold_something(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.publish()
    world.claim()
    world.clock.advance(seconds=31)
    world.worker("w2", "q")
    told = problems(world.operations.status())
    assert told["silent-worker"] == "Worker w1 has not been seen since 12:00:00 UTC and holds 1 message."
    assert "no-worker" not in told
    agree(world.operations)


def test_no_worker_at_all(world: World) -> None:
    world.subscribe("q", "order.placed")
    assert world.operations.status().problems == ()
    world.publish()
    assert problems(world.operations.status()) == {"no-worker": "No worker is running, and 1 message waits."}
    agree(world.operations)


def test_a_queue_that_the_running_workers_leave_out(world: World) -> None:
    world.subscribe("send", "order.placed")
    world.worker("w1", "other")
    world.publish()
    assert problems(with_app(world).status()) == {
        "no-worker-for-queue": "No live worker takes from queue send, in which 1 message waits."
    }


def test_subscriptions_that_no_handler_has(world: World) -> None:
    """Renamed or removed: the old queue would fill for ever. The application knows it before anything waits."""
    world.subscribe("old_send", "order.placed")
    world.worker("w1", "send")
    assert world.operations.status().problems == ()  # a worker that is not started yet may have it
    text = problems(with_app(world).status())["orphaned-queue"]
    assert text.startswith(
        "Queue old_send is subscribed to order.placed, and no handler and no live worker has it: "
    )
    assert "nothing waits yet" in text
    world.publish()
    assert "1 message waits" in problems(world.operations.status())["orphaned-queue"]
    world.worker("w2", "old_send")
    assert "orphaned-queue" not in problems(with_app(world).status())


def test_the_most_frequent_errors_come_first(world: World) -> None:
    world.subscribe("q", "order.placed")
    world.subscribe("r", "user.created")
    for n in range(7):
        world.publish(queue="q")
        world.fail(
            world.claim("q")[0], 600.0, Reason.TRANSPORT_UNAVAILABLE, f"ConnectionError: port {n} refused"
        )
    for _ in range(3):
        world.publish(queue="r")
        world.die(world.claim("r", name="w2")[0])
    first, second = world.operations.status().causes
    assert (first.where, first.queue, first.count, first.is_exact, first.reason) == (
        "retrying", "q", 7, True, Reason.TRANSPORT_UNAVAILABLE,
    )  # fmt: skip
    assert (first.error or "").startswith("ConnectionError: port")
    assert (second.where, second.queue, second.count, second.error) == ("dead", "r", 3, "the end")


def test_frequent_errors_of_a_deep_queue_are_estimated(world: World) -> None:
    """Only the next thousand are read, whatever waits."""
    world.subscribe("q", "order.placed")
    world.publish(queue="q")
    world.fail(world.claim("q")[0], 600.0, text="ValueError: no")
    drafts = [NewMessage(uuid4(), "order.placed", "{}", queue="q") for _ in range(1499)]
    world.store.run(engine.append(drafts))
    columns = "claimable_at, status, attempts, failures, reason, errors"
    world.sql(
        f"update holdfast.message set ({columns}) = (select {columns} from holdfast.message where failures = 1)"
        " where failures = 0"
    )
    (found,) = world.operations.status().causes
    assert (found.count, found.is_exact, found.error) == (1500, False, "ValueError: no")


def test_a_halted_stream_names_the_command(world: World) -> None:
    world.subscribe("q", "order.placed")
    first, _ = world.in_stream(2)
    world.die(world.claim()[0], halt=True)
    (found,) = [each for each in world.operations.status().problems if each.name == "halted-stream"]
    assert found.text == f"Stream s of queue q is halted since 12:00:00 UTC by {first}; 1 message waits."
    assert "`holdfast streams show q s`" in found.remedy
    agree(world.operations)
