"""PostgreSQL: an order meets another transaction at the worst moment, statement by statement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.clock import MovableClock
from holdfast.errors import Refused
from holdfast.model.message import NewMessage
from holdfast.model.work import Outcome, Report, Settlement, Want
from holdfast.store.connecting_postgres import execute
from holdfast.store.plans import dead, dead_queries, engine, operator, queues
from holdfast.store.plans.engine_postgres import PostgresEngine
from holdfast.store.statement import Runnable, bound
from tests.operations.world import NOON, World, make


class Transaction:
    """A plan on a connection of its own, which goes on when the test says so."""

    def __init__(self, dsn: str, plan: Runnable[Any], now: datetime = NOON) -> None:
        self.connection = psycopg.connect(dsn)
        self.plan = bound(plan, PostgresEngine(), now)
        self.statement = next(self.plan)
        self.answer: Any = None

    def step(self) -> None:
        """Run one statement."""
        try:
            self.statement = self.plan.send(execute(self.connection, self.statement))
        except StopIteration as end:
            self.answer = end.value
            raise

    def finish(self) -> Any:
        """Run the rest, without the commit."""
        try:
            while True:
                self.step()
        except StopIteration:
            return self.answer

    def commit(self) -> None:
        self.connection.commit()
        self.connection.close()


def blocked(act: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Start what must wait for a lock, and make sure that it does."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except StopIteration:
            pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "it did not wait"
    return thread, failures


@pytest.fixture
def world(postgres_dsn: str) -> Iterator[World]:
    world = make(postgres_dsn, MovableClock(NOON))
    yield world
    world.store.close()


@pytest.mark.parametrize("which", ["head", "follower"])
def test_a_claim_that_is_under_way_is_seen(world: World, postgres_dsn: str, which: str) -> None:
    ids = world.in_stream(2)
    report = Report(world.worker(), want=[Want("q", 9)], total=9, run=5)
    claim = Transaction(postgres_dsn, engine.exchange(report))
    claim.finish()
    waiting, failures = blocked(lambda: world.operations.messages.park(ids[which == "follower"]))
    claim.commit()
    waiting.join(10)
    assert [type(each) for each in failures] == [Refused]
    assert set(world.states().values()) == {"leased"}


def test_a_settlement_that_is_under_way_is_seen(world: World, postgres_dsn: str) -> None:
    """The head is being settled: the order waits, and is then about the new head."""
    first, second, third = world.in_stream(3)
    (leased,) = world.claim()
    assert leased.message.id == first
    settle = Transaction(postgres_dsn, engine.settle([Settlement(leased, Outcome.DONE)], ()))
    settle.finish()
    waiting, failures = blocked(lambda: world.operations.messages.cancel(second))
    settle.commit()
    waiting.join(10)
    assert failures == []
    assert world.order() == [third]
    assert world.claimed() == [third]
    world.healthy()


def halted(world: World) -> tuple[UUID, UUID, int]:
    first, second = world.in_stream(2)
    world.die(world.claim()[0], halt=True)
    return first, second, world.one(second).seq


def test_a_message_that_came_back_before_the_first_is_noticed(world: World, postgres_dsn: str) -> None:
    """Else the order would overlook the lease of a run that begins with the one that came back."""
    first, second, seq = halted(world)
    ((letter, _),) = world.operations.dead.show(first)
    key = (first, "q", letter.seq)
    redrive = Transaction(postgres_dsn, dead.redrive([key], False))
    redrive.finish()
    cancel = Transaction(postgres_dsn, operator.cancel(seq))
    cancel.step()  # looks
    waiting, failures = blocked(cancel.step)  # locks the first in the order, which the redrive holds
    redrive.commit()
    waiting.join(10)
    assert failures == []
    assert world.claimed(run=2) == [first, second]
    with pytest.raises(operator.TargetChanged):
        cancel.finish()
    cancel.connection.close()
    with pytest.raises(Refused, match="handed out together"):
        world.operations.messages.cancel(second)


def test_a_redrive_waits_for_the_order_that_holds_the_first(world: World, postgres_dsn: str) -> None:
    first, second, seq = halted(world)
    cancel = Transaction(postgres_dsn, operator.cancel(seq))
    cancel.finish()
    waiting, failures = blocked(lambda: world.operations.dead.redrive(first))
    cancel.commit()
    waiting.join(10)
    assert failures == []
    assert world.outcome(second) == ["cancelled"]
    assert world.claimed() == [first]
    world.healthy()


def test_a_message_that_arrives_while_its_stream_is_resumed(world: World, postgres_dsn: str) -> None:
    """Nothing was in the order when the resume looked: it begins anew instead of waiting in the wrong order."""
    (only,) = world.in_stream(1)
    world.die(world.claim()[0], halt=True)
    resume = Transaction(postgres_dsn, operator.resume("q", "s"))
    resume.step()  # the stream's row
    resume.step()  # the first in the order: none
    arrived = world.publish(stream="s", queue="q")
    with pytest.raises(operator.TargetChanged):
        resume.finish()
    resume.connection.close()
    assert world.operations.streams.resume("q", "s")
    assert world.claimed() == [arrived]
    assert [each.id for each in world.operations.dead.list()] == [only]
    world.healthy()


def test_a_message_that_arrives_while_its_stream_is_halted(world: World, postgres_dsn: str) -> None:
    world.in_stream(1)
    world.done(world.claim()[0])
    halt = Transaction(postgres_dsn, operator.halt("q", "s", "operator: x"))
    halt.step()  # the stream's row
    halt.step()  # its head: none
    arrived = world.publish(stream="s", queue="q")
    with pytest.raises(operator.TargetChanged):
        halt.finish()
    halt.connection.close()
    world.operations.streams.halt("q", "s", "x")
    assert world.claimed() == []
    assert world.states() == {arrived: "blocked"}
    world.healthy()


def test_housekeeping_and_a_producer_of_the_same_stream(world: World, postgres_dsn: str) -> None:
    """The producer waits for the row that is being deleted, and then makes a new one with the right count."""
    world.in_stream(1)
    world.done(world.claim()[0])
    prune = Transaction(postgres_dsn, queues.prune("streams", None, 10))
    prune.finish()
    arrived: list[UUID] = []
    waiting, failures = blocked(lambda: arrived.append(world.publish(stream="s", queue="q")))
    prune.commit()
    waiting.join(10)
    assert failures == []
    assert world.claimed() == arrived
    world.healthy()


def test_a_producer_and_housekeeping_of_the_same_stream(world: World, postgres_dsn: str) -> None:
    """The row that a producer holds is passed over."""
    world.in_stream(1)
    world.done(world.claim()[0])
    message = NewMessage(uuid4(), "order.placed", body="{}", stream="s", queue="q")
    publish = Transaction(postgres_dsn, engine.append([message]))
    publish.finish()
    publish.connection.execute("set constraints all immediate")  # places it now instead of at the commit
    assert world.operations.housekeeping().streams == 0
    publish.commit()
    assert world.claimed() == [message.id]
    world.healthy()


@pytest.mark.parametrize("verb", ["move", "drop"])
def test_a_queue_is_not_emptied_under_a_claim(world: World, postgres_dsn: str, verb: str) -> None:
    world.subscribe("q", "order.placed")
    world.subscribe("other", "x")
    world.in_stream(2)
    report = Report(world.worker("w1", "elsewhere"), want=[Want("q", 9)], total=9, run=5)
    claim = Transaction(postgres_dsn, engine.exchange(report))
    claim.finish()
    queues = world.operations.queues
    empty = {"move": lambda: queues.move("q", "other"), "drop": lambda: queues.drop("q", force=True)}
    with pytest.raises(Refused, match="changed 20 times"):
        empty[verb]()
    claim.commit()
    assert set(world.states().values()) == {"leased"}
    world.healthy()


def test_a_moved_message_is_kept_although_the_other_with_its_id_ends_meanwhile(
    world: World, postgres_dsn: str
) -> None:
    """The other one was looked for twice: found at first, and not when its dead letter was written."""
    id = uuid4()
    for message in [NewMessage(id, "order.placed", f'"{queue}"', queue=queue) for queue in ("new", "old")]:
        world.store.run(engine.append([message]))
        world.clock.advance(seconds=1)
    (other,) = world.claim("new")
    now = world.clock.instant
    move = Transaction(postgres_dsn, queues.move("old", "new", 10, {}, NOON), now)
    while "insert into holdfast.dead" not in move.statement.sql:
        move.step()
    assert world.done(other)
    assert move.finish().taken == 1
    move.commit()
    ((letter, content),) = world.operations.dead.show(id)
    assert (letter.queue, content.body) == ("new", '"old"')
    world.healthy()


@pytest.mark.covers("X61")
def test_two_files_that_have_one_letter_under_two_numbers(world: World, postgres_dsn: str) -> None:
    """It died again between the two exports. Both imports stored it, and a redrive of one left the other dead."""
    id = world.publish(queue="q")
    world.die(world.claim()[0])
    (letter,) = world.operations.dead.list()
    ((row, _),) = world.store.run(dead_queries.whole([(id, "q", letter.seq)]))
    world.sql("delete from holdfast.dead")
    rows = [{**row, "id": str(id), "errors": None, "seq": seq} for seq in (letter.seq, letter.seq + 7)]
    first = Transaction(postgres_dsn, dead.put(rows[:1], [], NOON, False))
    first.finish()
    second = Transaction(postgres_dsn, dead.put(rows[1:], [], NOON, False))
    waiting, failures = blocked(second.finish)
    first.commit()
    waiting.join(10)
    second.commit()
    assert failures == []
    assert [each.seq for each in world.operations.dead.list()] == [letter.seq]
