"""An empty answer means that nothing was claimable, not that somebody else was quicker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast.model.work import Batch, Report, Want
from holdfast.store.connecting_postgres import execute
from holdfast.store.plans import engine
from holdfast.store.statement import drive
from tests.proof.instrument import function_source
from tests.store.box import QUEUE, Box, done, names

GATE = """
create schema if not exists slow;
create or replace function slow.pass(text) returns text language plpgsql as $$
begin
    if current_setting('slow.down', true) = 'yes' then
        perform pg_advisory_lock_shared(77);
        perform pg_advisory_unlock_shared(77);
    end if;
    return $1;
end $$
"""
OF_A_QUEUE = " from holdfast.message t\n             where t.queue = w.queue"
# What a look reads of a row before it locks it: it has its snapshot by then.
READS = {
    "claim": ("octet_length(m.body)", "octet_length(slow.pass(m.body))"),
    "claim_suspect": (
        "t.claimable_at" + OF_A_QUEUE,
        "t.claimable_at, slow.pass(t.body)" + OF_A_QUEUE,
    ),
}


@contextmanager
def looking(box: Box, **report: Any) -> Iterator[Any]:
    """A claim that has looked and has locked nothing yet; it goes on when the block ends. Answers its batch then."""
    whole = Report(box.worker("slow"), want=[Want(QUEUE, 1)], total=1000, **report)
    answer: dict[str, Batch] = {}
    with (
        psycopg.connect(box.dsn, autocommit=True) as gate,
        psycopg.connect(box.dsn, autocommit=True) as looks,
        ThreadPoolExecutor(1) as pool,
    ):
        gate.execute("select pg_advisory_lock(77)")
        looks.execute("set slow.down = 'yes'")
        plan = engine.exchange(whole)
        asked = pool.submit(lambda: drive(box.store.bound(plan), lambda statement: execute(looks, statement)))
        waits = "select 1 from pg_locks where pid = %s and locktype = 'advisory' and not granted"
        while not gate.execute(waits, [looks.info.backend_pid]).fetchone():
            assert not asked.done(), asked.result()
        yield answer
        gate.execute("select pg_advisory_unlock(77)")
        answer["batch"] = asked.result(10)


@pytest.fixture
def slow_box(pg_box: Box) -> Iterator[Box]:
    """Looks of a session that has set `slow.down` are slow in coming; the functions are put back afterwards."""
    with psycopg.connect(pg_box.dsn, autocommit=True) as db:
        db.execute(GATE)
        for name, (old, new) in READS.items():
            source = function_source(name)
            assert source.count(old) == 1
            db.execute(source.replace(old, new).encode())
    yield pg_box
    with psycopg.connect(pg_box.dsn, autocommit=True) as db:
        for name in READS:
            db.execute(function_source(name).encode())
        db.execute("drop schema slow cascade")


@pytest.mark.covers("X11", "B43")
def test_what_was_leased_meanwhile_is_replaced_by_what_was_not(slow_box: Box) -> None:
    box = slow_box
    box.send_all(*range(8))
    with looking(box) as answer:
        first = box.claim(heads=3)
    assert names(first) == [0, 1, 2]
    assert names(answer["batch"].work) == [3]


@pytest.mark.covers("X11", "B43")
def test_streams_whose_heads_were_leased_meanwhile_are_replaced_too(slow_box: Box) -> None:
    box = slow_box
    for n in range(4):
        box.send_all(n, n + 10, stream=f"s{n}")
    with looking(box) as answer:
        first = box.claim(heads=2)
    assert names(first) == [0, 1, 10, 11]
    assert names(answer["batch"].work) == [2, 12]
    assert box.settle(*map(done, answer["batch"].work), worker="slow") == set()


def test_when_all_was_leased_meanwhile_there_is_nothing(slow_box: Box) -> None:
    box = slow_box
    box.send_all(*range(3))
    with looking(box) as answer:
        assert len(box.claim()) == 3
    assert list(answer["batch"].work) == []


@pytest.mark.covers("X11", "X39")
def test_a_suspect_that_was_leased_meanwhile_is_replaced_by_another(slow_box: Box) -> None:
    box = slow_box
    box.send_all("a", "b")
    box.claim()
    box.pass_time(seconds=60)
    box.recover()
    with looking(box, suspects=True) as answer:
        first = box.claim_suspect()
    assert first is not None
    assert names([first]) != names(answer["batch"].work)
    assert len(answer["batch"].work) == 1


def test_who_finds_what_another_holds_without_a_lease_looks_again_soon(pg_box: Box) -> None:
    """An operator holds it for a moment, or a claim that may leave it: nobody tells a sleeper when that is over."""
    box = pg_box
    box.send("a")
    with psycopg.connect(box.dsn) as other:
        other.execute("select 1 from holdfast.message for update")
        batch = box.turn(peek=True)
        assert list(batch.work) == []
        assert batch.next_due is not None
        assert 0 < (batch.next_due - batch.now).total_seconds() < 0.1
    assert box.turn(peek=True).next_due is None  # handed out
    assert box.turn(peek=True).next_due is None  # and leased now
