"""One breaker for all processes: what is written and when, who gets the trials, what survives."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import CircuitOpen, NotMigrated, StoreUnavailable
from holdfast.limits.breakers import BreakerChanged, Breakers
from holdfast.store.plans import breakers
from holdfast.store.plans.breakers import BreakerRow, Change
from holdfast.store.statement import Plan, Statement
from tests.limits.cluster import Cluster, fail, succeed

# --- Together ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("V55")
def test_what_one_process_finds_out_all_others_know_a_second_later(cluster: Cluster) -> None:
    one, other = cluster.process().get("llm"), cluster.process().get("llm")
    succeed(other)
    fail(one, 10)
    cluster.advance(seconds=2)
    with pytest.raises(CircuitOpen) as refused, other:
        pass
    assert refused.value.retry_in == 28.0


@pytest.mark.covers("X29")
def test_the_calls_of_all_processes_are_one_window(cluster: Cluster) -> None:
    """Four processes fail three times each: none has seen ten calls, together they have."""
    processes = [cluster.process().get("llm") for _ in range(4)]
    for process in processes[:3]:
        fail(process, 3)
        cluster.advance(seconds=1)
        fail(process, 0)
        process.circuit.home.close()
    assert (cluster.row().state, cluster.row().calls) == ("closed", "x" * 9)
    fail(processes[3])
    assert cluster.row().state == "open"


def test_an_open_breaker_survives_a_restart(cluster: Cluster) -> None:
    before = cluster.process()
    fail(before.get("llm"), 10)
    before.close()
    cluster.advance(seconds=10)
    after = cluster.process().get("llm")
    with pytest.raises(CircuitOpen) as refused, after:
        pass
    assert refused.value.retry_in == 20.0


def test_successes_elsewhere_count_against_failures_here(cluster: Cluster) -> None:
    """While the shared window has failures, those for whom all goes well say so, once a second."""
    bad, good = cluster.process().get("llm"), cluster.process().get("llm")
    fail(bad, 1)
    succeed(good, 1)
    assert cluster.writes(lambda: succeed(good, 50)) == 0  # it has just said so
    cluster.advance(seconds=2)
    assert cluster.writes(lambda: succeed(good, 50)) == 1
    assert cluster.row().calls == "." * 20
    cluster.advance(seconds=2)
    assert cluster.writes(lambda: succeed(good, 50)) == 0  # and now all is well everywhere


# --- What is written --------------------------------------------------------------------------------------------------


def test_nothing_is_written_and_little_read_while_all_goes_well(cluster: Cluster) -> None:
    process = cluster.process()
    llm = process.get("llm")
    succeed(llm)
    reads = []
    store = llm.circuit.home.store
    real = store.read

    def counted(*args: Any, **options: Any) -> Any:
        reads.append(1)
        return real(*args, **options)

    store.read = counted  # type: ignore[method-assign,assignment]
    assert cluster.writes(lambda: succeed(llm, 2000)) == 0
    assert reads == []
    for _ in range(5):
        cluster.advance(seconds=1)
        assert cluster.writes(lambda: succeed(llm, 100)) == 0
        llm.circuit.home.submit(lambda: None).result()
    assert len(reads) == 5


def test_failures_are_written_at_most_once_a_second(cluster: Cluster) -> None:
    llm = cluster.process().get("llm")
    succeed(llm, 20)

    def half_of_them_fail() -> None:
        for _ in range(100):
            succeed(llm)
            fail(llm)

    assert cluster.writes(half_of_them_fail) == 1
    cluster.advance(seconds=1)
    assert cluster.writes(half_of_them_fail) == 1
    cluster.advance(seconds=0.5)
    assert cluster.writes(half_of_them_fail) == 0
    assert cluster.row().state == "closed"
    # What opens it does not wait.
    assert cluster.writes(lambda: fail(llm)) == 1
    assert cluster.row().state == "open"


def test_failures_that_end_while_others_are_handed_in_are_not_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them alone opens the breaker, and no call comes afterwards that could."""
    monkeypatch.setattr("holdfast.limits.breakers.PATIENCE", 0.02)
    process = cluster.process()
    llm = process.get("llm")
    succeed(llm)
    hold = threading.Event()
    process._circuits.submit(hold.wait)  # the store is slow
    for _ in range(5):
        fail(llm)
    # Another process has seen four failures meanwhile.
    other = cluster.process().get("llm")
    succeed(other)
    for _ in range(4):
        fail(other)
    other.circuit.home.close()
    hold.set()
    process._circuits.submit(lambda: None).result()
    process.close()
    assert cluster.row().state == "open"


def test_what_was_not_handed_in_is_when_the_process_ends(cluster: Cluster) -> None:
    process = cluster.process()
    fail(process.get("llm"), 3)
    assert cluster.row().calls == "x"
    process.close()
    assert cluster.row().calls == "xxx"


# --- Trials -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("V57", "X28")
def test_all_processes_together_let_three_trials_through(cluster: Cluster) -> None:
    fail(cluster.process().get("llm"), 10)
    cluster.advance(seconds=30)
    breakers = [cluster.process().get("llm") for _ in range(8)]
    begin, let_go = threading.Barrier(8), threading.Event()
    passed, refusals = [], []

    def one(n: int) -> None:
        begin.wait()
        try:
            with breakers[n]:
                passed.append(n)
                let_go.wait(20)
        except CircuitOpen as refused:
            refusals.append(refused.retry_in)

    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(one, n) for n in range(8)]
        for _ in range(2000):
            if len(refusals) == 5:
                break
            let_go.wait(0.01)
        assert (len(passed), len(refusals)) == (3, 5)
        assert max(refusals) <= 1.0  # one of the three may end at any moment
        assert (cluster.row().state, cluster.row().trials_left) == ("half_open", 0)
        let_go.set()
        for each in running:
            each.result()
    assert cluster.row().state == "closed"


def test_the_swap_is_refused_when_somebody_was_faster_and_decided_anew(cluster: Cluster) -> None:
    succeed(cluster.process().get("llm"))
    table = "holdfast_breaker" if cluster.store.engine.dialect == "sqlite" else "holdfast.breaker"
    faster = Statement(f"update {table} set version = version + 1, calls = 'x'")
    seen = []

    def decide(row: BreakerRow, _: object) -> BreakerRow:
        seen.append(row.calls)
        return row._replace(calls=row.calls + ".")

    def meddled(plan: Plan[Change]) -> Plan[Change]:
        """Somebody writes between the first look and the swap."""
        rows = yield next(plan)
        yield faster
        try:
            while True:
                rows = yield plan.send(rows)
        except StopIteration as end:
            change: Change = end.value
            return change

    before = cluster.row().version
    change = cluster.store.run(meddled(cluster.store.bound(breakers.change("llm", decide))))
    assert (seen, change.done, change.after.version) == (["", "x"], True, before + 2)
    assert cluster.row().calls == "x."


async def test_a_caller_who_gives_up_waiting_gives_the_trial_back(cluster: Cluster) -> None:
    process = cluster.process()
    llm = process.get("llm")
    fail(llm, 10)
    cluster.advance(seconds=30)
    looking = llm.circuit.look()
    assert looking is not None
    looking.result()
    hold = threading.Event()
    process._circuits.submit(hold.wait)  # the store is slow

    async def ask() -> None:
        async with llm:
            pytest.fail("it was called")

    waiting = asyncio.create_task(ask())
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    hold.set()
    process._circuits.submit(lambda: None).result()
    process._circuits.submit(lambda: None).result()
    assert (cluster.row().state, cluster.row().trials_left) == ("half_open", 3)


# --- Without the database ---------------------------------------------------------------------------------------------


def test_without_the_database_a_process_goes_by_what_it_knows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = cluster.process().get("llm")
    succeed(llm)
    store = llm.circuit.home.store

    def down(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(store, "run", down)
        patch.setattr(store, "read", down)
        cluster.advance(seconds=5)
        fail(llm, 9)
        with pytest.raises(CircuitOpen), llm:
            pass
        cluster.advance(seconds=30)
        succeed(llm, 3)
        succeed(llm, 10)
        fail(llm, 11)
    assert cluster.row().state == "closed"
    cluster.advance(seconds=2)
    succeed(llm)  # the row has the last word


@pytest.mark.one_postgres
def test_a_call_inside_a_transaction_of_sqlite_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(f"sqlite:///{tmp_path / 'own.db'}")
    monkeypatch.setattr("holdfast.limits.breakers.PATIENCE", 0.05)
    process = cluster.process()
    llm = process.get("llm")
    succeed(llm)
    store = process._circuits.store
    with store.transaction():
        fail(llm, 3)
    process.close()
    assert cluster.row().calls == ".xxx"
    cluster.close()


@pytest.mark.one_postgres
def test_missing_tables_are_made_or_told(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if place == "sqlite":
        cluster = Cluster(f"sqlite:///{tmp_path / 'new.db'}")
        succeed(cluster.process().get("llm"))
        assert cluster.row().version == 1
    else:
        cluster = Cluster(request.getfixturevalue("cluster").url + "")
        cluster.store = cluster.open()
        cluster.store.engine.schema = "elsewhere"  # type: ignore[union-attr]
        cluster.store.schema = "elsewhere"  # type: ignore[union-attr]
        found = Breakers(cluster.store)
        with pytest.raises(NotMigrated, match="holdfast migrate"), found.get("llm"):
            pass
        found.close()
    cluster.close()


# --- Telling ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("W68")
def test_a_change_is_told_once_with_its_reason(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    one, other = cluster.process(), cluster.process()
    told: list[BreakerChanged] = []
    one.listen(told.append)
    other.listen(told.append)
    one.listen(lambda _: 1 / 0)  # somebody else's alert is broken
    succeed(other.get("llm"))
    with caplog.at_level(logging.INFO, "holdfast.breakers"):
        fail(one.get("llm"), 10)
        cluster.advance(seconds=30)
        succeed(other.get("llm"), 3)
    assert [(each.before, each.after) for each in told] == [
        ("closed", "open"),
        ("open", "half_open"),
        ("half_open", "closed"),
    ]
    assert told[0].why == "10 of the last 10 calls failed: Down"
    assert "Breaker llm is open, was closed: 10 of the last 10 calls failed: Down" in caplog.text


def test_another_store_is_another_world(cluster: Cluster, tmp_path: Path) -> None:
    """As in app.testing(): what was known of one database says nothing about another."""
    elsewhere = Cluster(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    stores = [cluster.open(), elsewhere.open()]
    breakers = Breakers(lambda: stores[0])
    llm = breakers.get("llm")
    fail(llm, 10)
    stores.reverse()
    succeed(llm)
    stores.reverse()
    with pytest.raises(CircuitOpen), llm:
        pass
    breakers.close()
    for store in stores:
        store.close()
    elsewhere.close()
