"""Guards of the store that need a moment of real time or real threads to be seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.model.message import NewMessage
from holdfast.model.work import Batch, Report, Want
from holdfast.settings import Settings
from holdfast.store import SqliteStore
from holdfast.store.plans import engine, queues
from holdfast.store.postgres import PostgresStore
from holdfast.store.recognise import recognise
from holdfast.store.statement import Alone, Plan, Statement
from tests.store.box import done


def exchange(store: SqliteStore, report: Report) -> Batch:
    return store.run(engine.exchange(report))


def message(**fields: str) -> NewMessage:
    return NewMessage(id=uuid4(), type="t", body="1", **fields)


@pytest.fixture
def store(postgres_dsn: str) -> Iterator[PostgresStore]:
    found = PostgresStore(postgres_dsn, Settings(), SystemClock())
    found.migrate()
    found.run(engine.subscribe({"q": ["t"]}))
    yield found
    found.close()


@pytest.mark.one_postgres
def test_a_lease_taken_late_in_a_transaction_is_not_born_lapsed(store: PostgresStore) -> None:
    store.run(engine.append([message()]))
    report = Report(1, want=[Want("q", 1)], total=1, lease=0.3)

    def late() -> Plan[object]:
        yield Statement("select pg_sleep(0.4)")
        yield from engine.exchange(report)
        return (yield Statement("select until > clock_timestamp() from holdfast.lease"))

    assert store.run(late()) == [(True,)]


@pytest.mark.one_postgres
def test_a_heartbeat_renews_what_it_was_given_and_nothing_later(store: PostgresStore) -> None:
    """The same worker may hold the same message again: its old attempt must hear that it has lost."""
    store.run(engine.append([message()]))
    number = store.run(engine.register_worker("one", ["q"]))
    report = Report(number, want=[Want("q", 1)], total=1)
    (first,) = store.run(engine.exchange(report)).work
    store.run(engine.recover(worker=number))
    (second,) = store.run(engine.exchange(report)).work
    assert (first.message.seq, first.epoch) != (second.message.seq, second.epoch)
    both = [(each.run, each.run_epoch) for each in (first, second)]
    for fence, gone in zip(both, ({first.run}, set()), strict=True):
        lost, _ = store.run(engine.renew(number, [fence], 30.0))
        assert lost == gone


@pytest.mark.one_postgres
def test_a_heartbeat_waits_for_nobody(store: PostgresStore) -> None:
    """An exchange that changes the worker's row may itself wait, for as long as a user's transaction lasts."""
    hasty = PostgresStore(store.url, Settings(lease=0.6, heartbeat=0.3), SystemClock())
    number = hasty.run(engine.register_worker("one", ["q"]))
    with closing(psycopg.connect(store.url)) as busy:
        busy.execute("update holdfast.worker set asleep = true")
        assert hasty.run(engine.renew(number, [], 30.0)) == (set(), set())
    hasty.close()


@pytest.mark.one_postgres
def test_a_producer_with_an_old_snapshot_does_not_believe_a_row_that_is_gone(store: PostgresStore) -> None:
    """It sees the row of the stream that housekeeping took away, beside its own: found by the explorer."""
    store.run(engine.append([message(stream="s")]))
    report = Report(1, want=[Want("q", 1)], total=1)
    (leased,) = store.run(engine.exchange(report)).work
    store.run(engine.exchange(Report(1, [done(leased)])))
    with closing(psycopg.connect(store.url)) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        recognise(db).run(store.bound(engine.append([message(stream="s")])))
        assert store.run(queues.prune("streams", None, 10)).count == 1
        with pytest.raises(psycopg.errors.SerializationFailure):
            db.commit()
        db.rollback()
        recognise(db).run(store.bound(engine.append([message(stream="s")])))
        db.commit()
    assert len(store.run(engine.exchange(report)).work) == 1


@pytest.mark.one_postgres
def test_a_connection_in_doubt_is_not_used_again(store: PostgresStore) -> None:
    """A plan that fails inside its transaction, or leaves one open, does not leave it to the next."""

    def left_open() -> Plan[None]:
        yield Statement("begin")

    store.run(Alone(left_open()))
    store.run(engine.append([message(stream="s")]))
    with closing(psycopg.connect(store.url)) as other:
        assert other.execute("select count(*) from holdfast.message").fetchall() == [(1,)]


@pytest.mark.one_postgres
def test_the_default_isolation_of_a_database_does_not_reach_the_store(store: PostgresStore) -> None:
    """A claim looks anew in each statement: with one snapshot it hands out followers that have left the order."""
    with psycopg.connect(store.url, autocommit=True) as db:
        (name,) = db.execute("select current_database()").fetchall()[0]
        db.execute(f'alter database "{name}" set default_transaction_isolation = "serializable"'.encode())
    fresh = PostgresStore(store.url, Settings(), SystemClock())

    def level() -> Plan[object]:
        return (yield Statement("select current_setting('transaction_isolation')"))

    assert fresh.run(level()) == [("read committed",)]
    fresh.close()


def test_sqlite_writers_wait_for_each_other(tmp_path: Path) -> None:
    """A transaction that begins as a reader and then writes is refused at once, however long it would wait."""
    path = str(tmp_path / "holdfast.db")
    stores = [SqliteStore(path, Settings(), SystemClock()) for _ in range(3)]
    stores[0].migrate()
    stores[0].run(engine.subscribe({"q": ["t"]}))
    faults: list[Exception] = []

    def work(store: SqliteStore) -> None:
        try:
            for _ in range(60):
                store.run(engine.append([message(stream="s", dedupe=str(uuid4()))]))
                work = exchange(store, Report(1, want=[Want("q", 5)], total=5)).work
                exchange(store, Report(1, [done(each) for each in work]))
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert faults == []
