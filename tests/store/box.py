"""A store, a clock that stands still and a worker or two, behind few words.

    box.send("a", stream="s")                publish in a transaction of its own; answers the id
    work = box.claim()                       what worker 1 gets
    box.settle(done(work[0]))                and hands in
    box.clock.advance(seconds=60)

Settlements come from the rules, as they do in the engine: `done`, `failed`, `dead`, ... make them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from msgspec.structs import replace

from holdfast.clock import MovableClock
from holdfast.model.message import NewMessage, Published
from holdfast.model.work import Batch, Leased, Report, Settlement, Want
from holdfast.rules import delivery
from holdfast.rules.delivery import Ending
from holdfast.rules.policy import HandlerPolicy
from holdfast.rules.retry import RetryPolicy, policy
from holdfast.store import SqliteStore, Store
from holdfast.store.plans import engine, scheduled
from holdfast.store.recognise import recognise
from tests.store import state
from tests.store.state import Row

QUEUE = "mail"
TYPE = "order.placed"


def new(name: Any = "m", **fields: Any) -> NewMessage:
    """A message with `name` as its body."""
    fields.setdefault("type", TYPE)
    fields.setdefault("id", uuid4())
    return NewMessage(body=json.dumps(name), **fields)


class Box:
    """One store under test."""

    def __init__(self, store: Store, clock: MovableClock, dsn: str = "") -> None:
        self.store, self.clock, self.dsn = store, clock, dsn
        self.workers: dict[str, int] = {}

    @property
    def sqlite(self) -> bool:
        return isinstance(self.store, SqliteStore)

    @property
    def now(self) -> datetime:
        return self.clock.instant

    # -- subscribing and publishing

    def subscribe(self, queue: str = QUEUE, *patterns: str) -> int:
        """Answers how many messages were adopted."""
        subscriptions = {queue: patterns or (TYPE,)}
        return self.store.run(engine.subscribe(subscriptions))

    def subscribe_unordered(self, queue: str, *patterns: str) -> int:
        """A queue that does not keep the order of streams."""
        return self.store.run(engine.subscribe({queue: patterns}, [queue]))

    def publish(self, *messages: NewMessage) -> list[Published]:
        """In a transaction of its own, as the engine does it: PostgreSQL gives the places at once then."""
        return self.store.run(engine.append(messages, place=True))

    def publish_deferred(self, *messages: NewMessage) -> list[Published]:
        """As in a caller's transaction: PostgreSQL gives the places when it commits."""
        return self.store.run(engine.append(messages))

    def send(self, name: Any = "m", **fields: Any) -> UUID:
        (published,) = self.publish(new(name, **fields))
        return published.id

    def send_all(self, *names: Any, **fields: Any) -> list[UUID]:
        """Several messages in one call."""
        return [published.id for published in self.publish(*(new(name, **fields) for name in names))]

    def publish_on(self, handle: Any, *messages: NewMessage) -> list[Published]:
        """Publish in the caller's own transaction."""
        return recognise(handle).run(self.store.bound(engine.append(messages)))

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection of the user's own, in a transaction that nobody commits but the user."""
        if isinstance(self.store, SqliteStore):
            with closing(sqlite3.connect(self.store.path, isolation_level="IMMEDIATE")) as db:
                yield db
        else:
            with closing(psycopg.connect(self.dsn)) as db:
                yield db

    # -- the worker's turn

    def worker(self, name: str = "one") -> int:
        if name not in self.workers:
            self.workers[name] = self.store.run(engine.register_worker(name, [QUEUE]))
        return self.workers[name]

    def exchange(self, *settlements: Settlement, worker: str = "one", **report: Any) -> Batch:
        whole = Report(self.worker(worker), settlements, **report)
        if whole.want:
            self.bring()
        return self.store.run(engine.exchange(whole))

    def bring(self, count: int = 500, size: int = 8 * 1024 * 1024) -> int:
        """What the tick of a worker's turn does: bring over what is due. Answers how many."""
        return self.store.run(scheduled.bring(count, size)).did

    def turn(
        self, *settlements: Settlement, queues: Sequence[str] = (QUEUE,), heads: int = 100, **report: Any
    ) -> Batch:
        """Hand in and claim, in one call."""
        report = {"want": [Want(queue, heads) for queue in queues], "total": 1000, **report}
        return self.exchange(*settlements, **report)

    def claim(self, *queues: str, heads: int = 100, **report: Any) -> list[Leased]:
        return list(self.turn(queues=queues or (QUEUE,), heads=heads, **report).work)

    def claim_one(self, *queues: str, **report: Any) -> Leased:
        (leased,) = self.claim(*queues, **report)
        return leased

    def claim_suspect(self, *queues: str, **report: Any) -> Leased | None:
        work = self.claim(*queues, suspects=True, **report)
        assert len(work) <= 1
        return work[0] if work else None

    def settle(self, *settlements: Settlement, **report: Any) -> set[int]:
        """Answers the lost ones by seq."""
        return set(self.exchange(*settlements, **report).lost)

    def renew(self, *leased: Leased, worker: str = "one", lease: float = 30.0) -> tuple[set[int], set[int]]:
        """Answers the lost ones and those asked to be cancelled."""
        tokens = [(each.run, each.run_epoch) for each in leased]
        number = self.worker(worker)
        return self.store.run(engine.renew(number, tokens, lease))

    def recover(self, worker: str | None = None, **lists: Any) -> int:
        number = None if worker is None else self.worker(worker)
        return self.store.run(engine.recover(worker=number, **lists))

    def announce_stop(self, worker: str = "one") -> None:
        number = self.worker(worker)
        self.store.run(engine.announce_stop(number))

    def pass_time(self, **parts: float) -> None:
        self.clock.advance(**parts)

    # -- looking at what is stored

    def query(self, text: str, **params: object) -> list[tuple[Any, ...]]:
        return state.query(self.store, text, **params)

    def messages(self, queue: str | None = None) -> list[Row]:
        """Everything that is pending, scheduled or not."""
        return [m for m in state.read(self.store, "pending") if queue is None or m.queue == queue]

    def message(self, id: UUID, queue: str = QUEUE) -> Row:
        (found,) = [m for m in self.messages(queue) if m.id == id]
        return found

    def read(self, table: str) -> list[Row]:
        return state.read(self.store, table)

    def stream(self, name: str, queue: str = QUEUE) -> Row:
        (found,) = [s for s in self.read("stream") if (s.queue, s.name) == (queue, name)]
        return found

    # -- what an operator will do one day, by hand

    def pause(self, queue: str = QUEUE) -> None:
        self.query(
            "update {queue} set paused_at = :now where name = :queue", queue=queue, now=self.store.now()
        )

    def resume(self, queue: str = QUEUE) -> None:
        self.query("update {queue} set paused_at = null where name = :queue", queue=queue)

    def park(self, id: UUID, queue: str = QUEUE) -> None:
        never = "9223372036854775807" if self.sqlite else "'infinity'"
        where = "id = :id and queue = :queue"
        self.query(f"update {{message}} set claimable_at = {never} where {where}", id=str(id), queue=queue)

    def unpark(self, id: UUID, queue: str = QUEUE) -> None:
        where, now = "id = :id and queue = :queue", self.store.now()
        self.query(
            f"update {{message}} set claimable_at = :now where {where}", id=str(id), queue=queue, now=now
        )

    def lift_halts(self) -> None:
        true = "1" if self.sqlite else "true"
        self.query("update {stream} set halted_by = null, halted_at = null")
        self.query(
            f"""update {{message}} set head = {true} where position is not null and not exists (
                select 1 from {{message}} o where o.queue = {{message}}.queue and o.stream = {{message}}.stream
                   and o.position < {{message}}.position)"""
        )

    def ask_to_cancel(self, leased: Leased) -> None:
        true = "1" if self.sqlite else "true"
        self.query(f"update {{lease}} set cancel = {true} where seq = :seq", seq=leased.run)


# --- Endings ----------------------------------------------------------------------------------------------------------


def concluded(leased: Leased, ending: Ending, how: HandlerPolicy | None = None) -> Settlement:
    settlement = delivery.conclude(leased, ending, how or HandlerPolicy(), leased.message.created_at, 0.5)
    assert settlement is not None
    return settlement


def handler(retry: str | RetryPolicy = "patient", **declared: Any) -> HandlerPolicy:
    return HandlerPolicy(retry=policy(retry), **declared)


def done(leased: Leased, *emits: NewMessage, flags: int = 0, ran: float = 0.0) -> Settlement:
    return concluded(leased, delivery.Returned(flags, emits, ran))


def failed(
    leased: Leased, error: str | Exception = "boom", *, flags: int = 0, ran: float = 0.0, **declared: Any
) -> Settlement:
    """A failure that is worth another try, unless the policy says otherwise."""
    raised = RuntimeError(error) if isinstance(error, str) else error
    return concluded(leased, delivery.Raised(raised, flags, ran), handler(**declared))


def dead(
    leased: Leased, why: str = "no use", *, flags: int = 0, ran: float = 0.0, **declared: Any
) -> Settlement:
    return concluded(leased, delivery.Died(why, flags, ran), handler(**declared))


def released(leased: Leased) -> Settlement:
    return delivery.release(leased)


def given_back(leased: Leased, delay: float = 0.0, refund: bool = True) -> Settlement:
    return delivery.give_back(leased, delay, refund)


def snoozed(leased: Leased, delay: float) -> Settlement:
    return concluded(leased, delivery.Snoozed(delay))


def paused(leased: Leased, why: str = "instance: paused") -> Settlement:
    return concluded(leased, delivery.Paused(why))


def cancelled(leased: Leased, ran: float = 0.0) -> Settlement:
    return concluded(leased, delivery.Cancelled(ran=ran))


def moved(run: Sequence[Leased]) -> list[Leased]:
    """The rest of a run whose settled part ended before `run[0]`, under the lease that moved on to it."""
    return [replace(each, run=run[0].message.seq, run_epoch=run[0].epoch) for each in run]


def names(work: Sequence[Leased]) -> list[Any]:
    return [json.loads(leased.message.body) for leased in work]
