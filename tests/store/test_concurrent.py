"""What transactions do to each other. On PostgreSQL step by step, with transactions held open; on both under load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast.model.work import Report, Want
from holdfast.store.connecting_postgres import execute
from holdfast.store.plans import engine
from holdfast.store.statement import Runnable, drive
from tests.store import state
from tests.store.box import QUEUE, Box, done, failed, names, new

BLOCKED_SECONDS = 0.3


@contextmanager
def transaction(box: Box) -> Iterator[Callable[[Runnable[Any]], Any]]:
    """A transaction that stays open until the block ends; it runs plans."""
    with psycopg.connect(box.dsn) as connection:
        yield lambda plan: drive(box.store.bound(plan), lambda statement: execute(connection, statement))


def exchange(
    box: Box, *settlements: Any, worker: str = "one", heads: int = 100, **report: Any
) -> Runnable[Any]:
    report = {"want": [Want(QUEUE, heads)], "total": 1000, **report}
    return engine.exchange(Report(box.worker(worker), settlements, **report))


def publish(box: Box, *messages: Any) -> Runnable[Any]:
    return engine.append(messages)


@pytest.fixture
def aside() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Does something in another thread, which is expected to wait for somebody."""
    with ThreadPoolExecutor(4) as pool:

        def start(call: Callable[[], Any]) -> Future[Any]:
            future = pool.submit(call)
            assert not threading.Event().wait(BLOCKED_SECONDS)
            return future

        yield start


# --- Claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("B43", "W103", "X23", "B28")
def test_two_claims_at_the_same_time_get_disjoint_sets(pg_box: Box) -> None:
    box = pg_box
    box.send_all(*range(6))
    with transaction(box) as first, transaction(box) as second:
        a = first(exchange(box, heads=3)).work
        b = second(exchange(box, heads=5, worker="two")).work
    assert (names(a), names(b)) == ([0, 1, 2], [3, 4, 5])


@pytest.mark.covers("W45", "W103")
def test_a_head_that_is_being_claimed_hides_its_whole_stream(pg_box: Box) -> None:
    box = pg_box
    box.send_all("a", "b", stream="s")
    box.send("other")
    with transaction(box) as first, transaction(box) as second:
        assert names(first(exchange(box, run=1)).work) == ["a", "other"]
        assert second(exchange(box, worker="two")).work == []


@pytest.mark.covers("D10")
def test_a_claim_that_is_rolled_back_leaves_nothing(pg_box: Box) -> None:
    box = pg_box
    id = box.send("a")
    with psycopg.connect(box.dsn) as connection:
        batch = drive(box.store.bound(exchange(box)), lambda statement: execute(connection, statement))
        assert len(batch.work) == 1
        connection.rollback()
    leased = box.claim_one()
    assert (leased.message.id, leased.attempt, leased.epoch) == (id, 1, 1)


SLOW_LOOK = """
create schema if not exists slow;
create or replace function slow.octet_length(text) returns int language plpgsql as $$
begin
    if current_setting('slow.look', true) = 'on' then
        perform pg_advisory_xact_lock_shared(7);
    end if;
    return pg_catalog.octet_length($1);
end $$;
alter function holdfast.claim set search_path = slow, pg_catalog;
"""
QUICK_LOOK = """
alter function holdfast.claim set search_path = pg_catalog, pg_temp;
drop schema slow cascade;
"""


@pytest.mark.covers("B43", "X23")
def test_what_is_leased_while_a_claim_looks_is_passed_over(pg_box: Box, aside: Any) -> None:
    """It has looked, and has locked nothing yet: the sizes that it asks for are slow in coming."""
    box = pg_box
    box.send("a", stream="s")
    box.send_all("b", stream="s")
    box.send_all("c", "d")
    with (
        psycopg.connect(box.dsn, autocommit=True) as gate,
        psycopg.connect(box.dsn, autocommit=True) as looks,
    ):
        gate.execute(SLOW_LOOK)
        gate.execute("select pg_advisory_lock(7)")
        looks.execute("set slow.look = 'on'")
        plan = exchange(box, worker="two")
        looking = aside(lambda: drive(box.store.bound(plan), lambda statement: execute(looks, statement)))
        first = box.claim(heads=2)
        gate.execute("select pg_advisory_unlock(7)")
        second = looking.result(10).work
        gate.execute(QUICK_LOOK)
    assert (names(first), names(second)) == (["a", "c", "b"], ["d"])
    assert box.settle(*map(done, first)) == set()


def test_what_is_taken_over_while_a_settlement_waits_for_it_is_not_settled(pg_box: Box, aside: Any) -> None:
    """It has seen its own lease, and finds a newer one when it has the message."""
    box = pg_box
    box.send("a")
    mine = box.claim_one()
    box.worker("two")
    box.pass_time(seconds=60)
    with transaction(box) as taking:
        assert taking(engine.recover()) == 1
        (theirs,) = taking(exchange(box, worker="two", suspects=True)).work
        settling = aside(lambda: box.settle(done(mine)))
    with pytest.raises(psycopg.errors.SerializationFailure, match="taken over"):
        settling.result(10)
    assert box.settle(done(theirs), worker="two") == set()


# --- Order ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X45", "W36")
def test_places_follow_the_order_of_commits(pg_box: Box) -> None:
    box = pg_box
    with transaction(box) as slow:
        slow(publish(box, new("slow", stream="s")))
        with transaction(box) as quick:
            quick(publish(box, new("quick", stream="s")))
        box.send("alone", stream="s")
        assert names(box.claim(run=1)) == ["quick"]
    assert [m.body for m in sorted(box.messages(), key=lambda m: m.position)] == [
        '"quick"',
        '"alone"',
        '"slow"',
    ]


def test_publishing_locks_no_stream_before_the_commit(pg_box: Box) -> None:
    """Two transactions that publish into the same streams in opposite order would deadlock otherwise."""
    box = pg_box
    with transaction(box) as first, transaction(box) as second:
        first(publish(box, new("1a", stream="a")))
        second(publish(box, new("2b", stream="b")))
        first(publish(box, new("1b", stream="b")))
        second(publish(box, new("2a", stream="a")))
    assert len(box.claim()) == 4


def test_a_publish_that_commits_while_the_last_message_is_settled_is_not_stranded(
    pg_box: Box, aside: Any
) -> None:
    box = pg_box
    box.send("a", stream="s")
    leased = box.claim_one()
    with transaction(box) as settling:
        settling(engine.settle([done(leased)], []))
        waiting = aside(lambda: box.send("b", stream="s"))
        assert not waiting.done()
    waiting.result(5)
    assert names(box.claim()) == ["b"]


def test_a_settlement_that_commits_while_a_publish_is_open_is_not_overtaken(pg_box: Box) -> None:
    box = pg_box
    box.send("a", stream="s")
    with transaction(box) as publishing:
        publishing(publish(box, new("b", stream="s")))
        box.settle(done(box.claim_one()))
        assert box.claim() == []
    assert names(box.claim()) == ["b"]


def test_a_producer_with_an_old_snapshot_gets_an_error_and_strands_nothing(pg_box: Box) -> None:
    box = pg_box
    box.send("a", stream="s")
    with psycopg.connect(box.dsn) as connection:
        connection.execute("set transaction isolation level repeatable read")
        drive(
            box.store.bound(publish(box, new("b", stream="s"))),
            lambda statement: execute(connection, statement),
        )
        box.settle(done(box.claim_one()))
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.commit()
    assert box.messages() == []
    box.send("c", stream="s")
    assert names(box.claim()) == ["c"]


def test_a_first_subscriber_and_a_publish_at_the_same_time_lose_nothing(pg_box: Box) -> None:
    box = pg_box
    with transaction(box) as publishing:
        publishing(publish(box, new("m", type="other", stream="s")))
        box.subscribe("ledger", "other")
    assert [m.queue for m in box.messages()] == [None]
    box.store.run(engine.adopt(1000))
    assert names(box.claim("ledger")) == ["m"]


# --- Dedupe -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("X43")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_key_in_an_open_transaction_makes_others_wait_for_its_end(
    pg_box: Box, aside: Any, end: str
) -> None:
    box = pg_box
    first, second = new("first", dedupe="k"), new("second", dedupe="k")
    with psycopg.connect(box.dsn) as connection:
        drive(box.store.bound(publish(box, first)), lambda statement: execute(connection, statement))
        waiting = aside(lambda: box.publish(second))
        assert not waiting.done()
        connection.commit() if end == "commit" else connection.rollback()
    expected = [(first.id, True)] if end == "commit" else [(second.id, False)]
    assert waiting.result(5) == expected
    assert names(box.claim()) == ["first" if end == "commit" else "second"]


# --- Leases -----------------------------------------------------------------------------------------------------------


def test_a_settlement_that_is_not_committed_yet_is_not_taken_over(pg_box: Box) -> None:
    box = pg_box
    box.send_all("a", "b", stream="s")
    leased = box.claim(run=1)[0]
    with transaction(box) as settling:
        settling(engine.settle([done(leased)], []))
        box.pass_time(hours=1)
        assert box.recover() == 0
        assert box.recover("one") == 0
    assert names(box.claim()) == ["b"]


def test_a_heartbeat_does_not_wait_for_a_settlement(pg_box: Box) -> None:
    box = pg_box
    box.send_all("a", "b")
    a, b = box.claim()
    with transaction(box) as settling:
        settling(engine.settle([done(a)], []))
        assert box.renew(a, b) == (set(), set())


@pytest.mark.parametrize("end", [done, failed])
def test_a_settlement_waits_for_a_take_over_and_finds_its_lease_lost(
    pg_box: Box, aside: Any, end: Any
) -> None:
    box = pg_box
    box.send_all("a", "b", stream="s")
    run = box.claim()
    box.pass_time(hours=1)
    with transaction(box) as recovering:
        recovering(engine.recover())
        waiting = aside(lambda: box.settle(end(run[0])))
        assert not waiting.done()
    try:
        assert waiting.result(5) == {run[0].message.seq}
    except psycopg.errors.SerializationFailure:
        # It had seen the lease before it waited: refused as a whole, and lost when it comes again.
        assert box.settle(end(run[0])) == {run[0].message.seq}
    assert [(m.attempts, m.vanished, m.failures) for m in box.messages()] == [(1, 1, 0), (1, 1, 0)]


def test_the_rest_of_a_run_has_what_a_renewal_on_its_way_gives(pg_box: Box, aside: Any) -> None:
    box = pg_box
    box.send_all("a", "b", stream="s")
    run = box.claim()
    with transaction(box) as renewing:
        renewing(engine.renew(box.worker(), [(run[0].run, run[0].epoch)], 1000.0))
        moves = [(run[0].run, run[1].message.seq)]
        settling = aside(lambda: box.settle(done(run[0]), moves=moves))
    assert settling.result(10) == set()
    (lease,) = state.read(box.store, "lease")
    assert (lease.seq, (lease.until - box.now).total_seconds()) == (run[1].message.seq, 1000.0)


# --- Under load -------------------------------------------------------------------------------------------------------


def drain(
    box: Box, worker: str, emit: Callable[[Any], Any], handled: list[tuple[str, Any]], stop: Any
) -> None:
    settlements: list[Any] = []
    while not stop.is_set():
        batch = box.turn(*settlements, worker=worker, heads=7, run=5)
        assert batch.lost == frozenset()
        settlements = [done(each, *emit(each)) for each in batch.work]
        handled += [
            (each.message.stream or "", name)
            for each, name in zip(batch.work, names(batch.work), strict=True)
        ]


@pytest.mark.covers("W103", "B3")
def test_producers_and_workers_at_the_same_time(box: Box) -> None:
    """Two producers and two workers on three streams, emitting crosswise: once each, in order, no deadlock."""
    for name in ("one", "two"):
        box.worker(name)
    count, stop = 60, threading.Event()
    handled: list[tuple[str, Any]] = []

    def produce(producer: str) -> None:
        for n in range(count):
            box.publish(*(new([producer, n], stream=f"s{(n + i) % 3}") for i in range(2)))

    def emit(leased: Any) -> Any:
        origin, n = names([leased])[0]
        return [] if origin == "emitted" else [new(["emitted", [origin, n]], stream=f"s{(n + 1) % 3}")]

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(drain, box, name, emit, handled, stop) for name in ("one", "two")]
        producers = [pool.submit(produce, name) for name in ("p", "q")]
        for each in producers:
            each.result(60)
        for _ in range(600):
            if not box.messages() or any(each.done() for each in workers):
                break
            stop.wait(0.05)
        stop.set()
        for each in workers:
            each.result(60)
    assert box.messages() == []
    assert len(handled) == 8 * count
    for producer in ("p", "q"):
        for stream in ("s0", "s1", "s2"):
            seen = [n for where, (origin, n) in handled if (where, origin) == (stream, producer)]
            assert seen == sorted(seen)
