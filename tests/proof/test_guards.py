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
from holdfast.store.plans import engine as plans
from holdfast.store.plans import queues as operator_queues
from holdfast.store.postgres import PostgresStore
from holdfast.store.runners import recognise
from holdfast.store.statement import Plan, Statement
from tests.store.box import done


def exchange(store: SqliteStore, report: Report) -> Batch:
    return store.run(lambda now: store.plans.exchange(report, now))


def message(**fields: str) -> NewMessage:
    return NewMessage(id=uuid4(), type="t", body="1", **fields)  # type: ignore[arg-type]


@pytest.fixture
def store(postgres_dsn: str) -> Iterator[PostgresStore]:
    found = PostgresStore(postgres_dsn, Settings(), SystemClock())
    found.migrate()
    found.run(lambda now: plans.subscribe(found.plans, {"q": ["t"]}, now))
    yield found
    found.close()


@pytest.mark.one_postgres
def test_a_lease_taken_late_in_a_transaction_is_not_born_lapsed(store: PostgresStore) -> None:
    store.run(lambda now: store.plans.append([message()], now))
    report = Report(1, want=[Want("q", 1)], total=1, lease=0.3)

    def late(now: object) -> Plan[object]:
        yield Statement("select pg_sleep(0.4)")
        yield from store.plans.exchange(report, None)
        return (yield Statement("select until > clock_timestamp() from holdfast.lease"))

    assert store.run(late) == [(True,)]


@pytest.mark.one_postgres
def test_a_heartbeat_renews_what_it_was_given_and_nothing_later(store: PostgresStore) -> None:
    """The same worker may hold the same message again: its old attempt must hear that it has lost."""
    store.run(lambda now: store.plans.append([message()], now))
    number = store.run(lambda now: plans.register_worker(store.plans, "one", ["q"], now))
    report = Report(number, want=[Want("q", 1)], total=1)
    (first,) = store.run(lambda now: store.plans.exchange(report, now)).work
    store.run(lambda now: store.plans.recover(now, worker=number))
    (second,) = store.run(lambda now: store.plans.exchange(report, now)).work
    assert (first.message.seq, first.epoch) != (second.message.seq, second.epoch)
    both = [(each.run, each.run_epoch) for each in (first, second)]
    for fence, gone in zip(both, ({first.run}, set()), strict=True):
        lost, _ = store.run(lambda now, fence=fence: store.plans.renew(number, [fence], 30.0, now))
        assert lost == gone


@pytest.mark.one_postgres
def test_a_heartbeat_waits_for_nobody(store: PostgresStore) -> None:
    """An exchange that changes the worker's row may itself wait, for as long as a user's transaction lasts."""
    hasty = PostgresStore(store.url, Settings(lease=0.6, heartbeat=0.3), SystemClock())
    number = hasty.run(lambda now: plans.register_worker(hasty.plans, "one", ["q"], now))
    with closing(psycopg.connect(store.url)) as busy:
        busy.execute("update holdfast.worker set asleep = true")
        assert hasty.run(lambda now: hasty.plans.renew(number, [], 30.0, now), one=True) == (set(), set())
    hasty.close()


@pytest.mark.one_postgres
def test_a_producer_with_an_old_snapshot_does_not_believe_a_row_that_is_gone(store: PostgresStore) -> None:
    """It sees the row of the stream that housekeeping took away, beside its own: found by the explorer."""
    store.run(lambda now: store.plans.append([message(stream="s")], now))
    report = Report(1, want=[Want("q", 1)], total=1)
    (leased,) = store.run(lambda now: store.plans.exchange(report, now)).work
    store.run(lambda now: store.plans.exchange(Report(1, [done(leased)]), now))
    with closing(psycopg.connect(store.url)) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        recognise(db).run(store.plans.append([message(stream="s")], None))
        assert store.run(lambda now: operator_queues.prune(store.plans, "streams", None, 10, now)).count == 1
        with pytest.raises(psycopg.errors.SerializationFailure):
            db.commit()
        db.rollback()
        recognise(db).run(store.plans.append([message(stream="s")], None))
        db.commit()
    assert len(store.run(lambda now: store.plans.exchange(report, now)).work) == 1


@pytest.mark.one_postgres
def test_a_connection_in_doubt_is_not_used_again(store: PostgresStore) -> None:
    """A plan that fails inside its transaction, or leaves one open, does not leave it to the next."""

    def left_open(_: object) -> Plan[None]:
        yield Statement("begin")

    store.run(left_open, one=True)
    store.run(lambda now: store.plans.append([message(stream="s")], now), one=True)
    with closing(psycopg.connect(store.url)) as other:
        assert other.execute("select count(*) from holdfast.message").fetchall() == [(1,)]


@pytest.mark.one_postgres
def test_the_default_isolation_of_a_database_does_not_reach_the_store(store: PostgresStore) -> None:
    """A claim looks anew in each statement: with one snapshot it hands out followers that have left the order."""
    with psycopg.connect(store.url, autocommit=True) as db:
        (name,) = db.execute("select current_database()").fetchall()[0]
        db.execute(f'alter database "{name}" set default_transaction_isolation = "serializable"'.encode())
    fresh = PostgresStore(store.url, Settings(), SystemClock())

    def level(_: object) -> Plan[object]:
        return (yield Statement("select current_setting('transaction_isolation')"))

    assert fresh.run(level) == [("read committed",)]
    fresh.close()


def test_sqlite_writers_wait_for_each_other(tmp_path: Path) -> None:
    """A transaction that begins as a reader and then writes is refused at once, however long it would wait."""
    path = str(tmp_path / "holdfast.db")
    stores = [SqliteStore(path, Settings(), SystemClock()) for _ in range(3)]
    stores[0].migrate()
    stores[0].run(lambda now: plans.subscribe(stores[0].plans, {"q": ["t"]}, now))
    faults: list[Exception] = []

    def work(store: SqliteStore) -> None:
        try:
            for _ in range(60):
                store.run(lambda now: store.plans.append([message(stream="s", dedupe=str(uuid4()))], now))
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
