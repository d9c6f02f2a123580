"""Producers in concurrent transactions on a few hot streams, while workers drain them.

A transaction updates one or two rows of the user's, in which it counts: that serialises the producers of a stream and
gives the truth about who came first. It publishes before or after that, at random, half of the producers in REPEATABLE
READ with a retry after 40001. The order in which messages are handled must be that of the counts (K13-K15), nothing may
be left behind (K21) and nobody may deadlock (K20).
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import IsolationLevel

from holdfast.clock import SystemClock
from holdfast.model.message import NewMessage
from holdfast.model.work import Leased, Report, Settlement, Want
from holdfast.settings import Settings
from holdfast.store.plans import engine
from holdfast.store.postgres import PostgresStore
from holdfast.store.recognise import recognise
from tests.proof.counts import COUNTS
from tests.store.box import done
from tests.store.state import check_invariants

STREAMS = ("a", "b", "c", "d")
SECONDS_MAX = 600.0  # far more than it takes, also where other tests run beside it


@dataclass
class Market:
    """A store, the user's rows, and what was committed and handled."""

    store: PostgresStore
    dsn: str
    version_of: dict[UUID, int] = field(default_factory=dict)  # of what was committed
    handled: dict[str, list[UUID]] = field(default_factory=lambda: defaultdict(list))
    conflicts: int = 0
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)  # the producers have

    # -- producing

    def produce(self, seed: int, count: int) -> None:
        dice = random.Random(seed)
        with psycopg.connect(self.dsn) as db:
            if seed % 2:
                db.isolation_level = IsolationLevel.REPEATABLE_READ
            for _ in range(count):
                self.commit(db, dice)

    def commit(self, db: psycopg.Connection[Any], dice: random.Random) -> None:
        """One transaction, begun anew as often as the database wants."""
        streams = dice.sample(STREAMS, dice.choice((1, 1, 2)))
        early = dice.random() < 0.5
        while True:
            messages = [NewMessage(id=uuid4(), type="t", body="1", stream=stream) for stream in streams]
            try:
                if early:
                    self.publish(db, messages)
                versions = {stream: count_up(db, stream) for stream in sorted(streams)}
                if not early:
                    self.publish(db, messages)
                db.commit()
                break
            except psycopg.errors.SerializationFailure:
                db.rollback()
                with self.lock:
                    self.conflicts += 1
        with self.lock:
            self.version_of |= {message.id: versions[message.stream or ""] for message in messages}

    def publish(self, db: psycopg.Connection[Any], messages: list[NewMessage]) -> None:
        for message in messages:
            recognise(db).run(self.store.bound(engine.append([message])))

    # -- handling

    def drain(self, name: str) -> None:
        number = self.store.run(engine.register_worker(name, ["q"]))
        settlements: list[Settlement] = []
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until:
            last = self.ended.is_set()
            report = Report(number, settlements, want=[Want("q", 10)], total=100)
            batch = self.exchange(report)
            if batch.lost:
                self.faults.append(f"{name} lost {batch.lost}")
            settlements = [self.handle(leased) for leased in batch.work]
            if not settlements:
                if last and not self.pending():
                    return
                time.sleep(0.002)
        self.faults.append(f"{name} did not come to an end: {self.pending()} messages are left")

    def exchange(self, report: Report) -> Any:
        return self.store.run(engine.exchange(report))

    def handle(self, leased: Leased) -> Settlement:
        with self.lock:
            self.handled[leased.message.stream or ""].append(leased.message.id)
        return done(leased)

    def pending(self) -> int:
        with psycopg.connect(self.dsn) as db:
            ((count,),) = db.execute("select count(*) from holdfast.message").fetchall()
        return int(count)

    # -- checking

    def check(self) -> None:
        assert self.faults == []
        for stream, ids in self.handled.items():
            versions = [self.version_of[id] for id in ids]
            early = [(n, a, b) for n, (a, b) in enumerate(pairwise(versions)) if a >= b]
            assert not early, (
                f"stream {stream}: {len(early)} of {len(versions)} out of order, first {early[0]}"
            )
        handled = [id for ids in self.handled.values() for id in ids]
        assert len(handled) == len(set(handled)) == len(self.version_of)
        with psycopg.connect(self.dsn) as db:
            ((deadlocks,),) = db.execute(
                "select deadlocks from pg_stat_database where datname = current_database()"
            ).fetchall()
        assert deadlocks == 0
        check_invariants(self.store)


def count_up(db: psycopg.Connection[Any], stream: str) -> int:
    ((version,),) = db.execute(
        "update counts set version = version + 1 where stream = %s returning version", [stream]
    ).fetchall()
    return int(version)


@pytest.fixture
def market(postgres_dsn: str) -> Iterator[Market]:
    store = PostgresStore(postgres_dsn, Settings(), SystemClock())
    store.migrate()
    store.run(engine.subscribe({"q": ["t"]}))
    with psycopg.connect(postgres_dsn) as db:
        db.execute("create table counts (stream text primary key, version int not null)")
        db.cursor().executemany("insert into counts values (%s, 0)", [(stream,) for stream in STREAMS])
    yield Market(store, postgres_dsn)
    store.close()


def run(market: Market, producers: int, workers: int, transactions: int) -> None:
    def watched(work: Callable[..., None], *args: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except Exception as error:
                market.faults.append(f"{work.__name__}{args}: {error!r}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    draining = [watched(market.drain, f"worker {n}") for n in range(workers)]
    producing = [watched(market.produce, seed, transactions // producers) for seed in range(producers)]
    for thread in producing:
        thread.join(SECONDS_MAX)
    market.ended.set()
    for thread in draining:
        thread.join(SECONDS_MAX)
    market.check()
    COUNTS.add("commit order", "messages", len(market.version_of))
    COUNTS.add("commit order", "retries after 40001", market.conflicts)


@pytest.mark.covers("W36", "X45", "W103")
def test_messages_are_handled_in_the_order_of_the_commits(market: Market) -> None:
    run(market, producers=6, workers=3, transactions=1500)
    assert market.conflicts > 0


@pytest.mark.faults("storms")
@pytest.mark.covers("W36", "X45", "W103")
def test_many_messages_are_handled_in_the_order_of_the_commits(market: Market) -> None:
    run(market, producers=12, workers=4, transactions=20_000)
