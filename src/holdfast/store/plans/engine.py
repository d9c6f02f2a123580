"""Verbs of storage that read the same on both databases: workers, queues and subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from ...model.message import Event
from ..statement import Plan, Statement
from . import engine_sqlite as plans_sqlite
from .engine_postgres import PostgresPlans
from .engine_sqlite import SqlitePlans

Plans = SqlitePlans | PostgresPlans

ADOPTED_AT_ONCE = 1000
Lease = tuple[int, int]  # the seq of the message it stands on, and its epoch


def sql(plans: Plans, name: str, /, **params: object) -> Statement:
    """A statement that both databases have under the same name, each in its own words."""
    if isinstance(plans, PostgresPlans):
        return plans.sql(name, **params)
    return plans_sqlite.sql(name, **params)


def register_worker(plans: Plans, name: str, queues: Sequence[str], now: Any) -> Plan[int]:
    """A worker introduces itself and gets its number."""
    listed: object = list(queues) if isinstance(plans, PostgresPlans) else plans_sqlite.encode(list(queues))
    ((number,),) = yield sql(plans, "worker_register", name=name, queues=listed, now=now)
    return int(number)


def announce_stop(plans: Plans, worker: int) -> Plan[None]:
    """A worker that has said it is stopping makes nobody a suspect."""
    yield sql(plans, "worker_stopping", worker=worker)


def note_trouble(
    plans: Plans, worker: int, story: str, timeouts: int, now: Any, restarts: int = 0
) -> Plan[None]:
    """What a worker had with its database, and is over: for the doctor."""
    yield sql(
        plans,
        "worker_trouble",
        worker=worker,
        story=story[:500],
        timeouts=timeouts,
        restarts=restarts,
        now=now,
    )


def retire_worker(plans: Plans, worker: int) -> Plan[None]:
    """A worker that holds nothing any more is forgotten."""
    yield sql(plans, "worker_retire", worker=worker)


def unsubscribed(
    plans: Plans, subscriptions: Mapping[str, Sequence[str]], unordered: Collection[str] = ()
) -> Plan[tuple[list[tuple[str, bool]], list[tuple[str, str]]]]:
    """What of these is not stored yet: queues and whether they keep order, and subscriptions (pattern, queue)."""
    known = {(pattern, queue) for pattern, queue in (yield sql(plans, "subscription_list"))}
    found = {name: bool(ordered) for name, ordered in (yield sql(plans, "queue_names"))}
    ordered = {queue: queue not in unordered for queue in sorted(subscriptions)}
    pairs = [(p, q) for q, patterns in sorted(subscriptions.items()) for p in sorted(patterns)]
    return (
        [(queue, keeps) for queue, keeps in ordered.items() if found.get(queue) is not keeps],
        [pair for pair in pairs if pair not in known],
    )


def subscribe(
    plans: Plans, subscriptions: Mapping[str, Sequence[str]], now: Any, unordered: Collection[str] = ()
) -> Plan[int]:
    """Queues subscribe to types or prefixes; what waited for a first subscriber is adopted. Idempotent."""
    queues, fresh = yield from unsubscribed(plans, subscriptions, unordered)
    for queue, ordered in queues:
        yield sql(plans, "queue_add", name=queue, ordered=plans.boolean(ordered), now=now)
    for pattern, queue in fresh:
        yield sql(plans, "subscription_add", pattern=pattern, queue=queue, now=now)
    adopted, last = 0, ADOPTED_AT_ONCE if fresh else 0
    while last == ADOPTED_AT_ONCE:  # all of them now: what is published from here on comes behind them
        last = yield from plans.adopt(ADOPTED_AT_ONCE, now)
        adopted += last
    return adopted


def read_events(plans: Plans, stream: str, after: int, count: int) -> Plan[list[Event]]:
    """The events of a stream behind a version, in order."""
    rows = yield sql(plans, "event_read", stream=stream, after=after, count=count)
    return [
        Event(stream, version, UUID(str(id)), type, subject, plans.moment(created_at), headers, body)
        for version, id, type, subject, created_at, headers, body in rows
    ]


def standing(plans: Plans, worker: int) -> Plan[set[Lease]]:
    """The leases of a worker: what it holds, whatever it may believe. An exchange on its way ends first."""
    if isinstance(plans, PostgresPlans):
        yield plans.sql("exchange_end", worker=worker)
    return {(seq, epoch) for seq, epoch in (yield sql(plans, "worker_leases", worker=worker))}


def look_at_leases(plans: Plans, seqs: Sequence[int]) -> Plan[tuple[set[Lease], bool]]:
    """Which leases stand on these messages, and whether an open transaction is about to change one of them."""
    if isinstance(plans, PostgresPlans):
        free = {(seq, epoch) for seq, epoch in (yield plans.sql("leases_free", seqs=list(seqs)))}
        found = {(seq, epoch) for seq, epoch in (yield plans.sql("leases_standing", seqs=list(seqs)))}
        return found, found != free
    rows = yield sql(plans, "leases_standing", seqs=plans_sqlite.encode(list(seqs)))
    return {(seq, epoch) for seq, epoch in rows}, False


def refuse(plans: Plans) -> Plan[None]:
    """Spoil the transaction, where a database can do that, so that nobody commits it by mistake."""
    if isinstance(plans, PostgresPlans):
        yield plans.sql("refuse")


def suspects_wait(plans: Plans, queues: Sequence[str], now: Any, families: Sequence[str] = ()) -> Plan[bool]:
    """Whether a message of these queues, or of those below these families, waits for the quarantine."""
    is_postgres = isinstance(plans, PostgresPlans)
    listed, below = (
        list(each) if is_postgres else plans_sqlite.encode(list(each)) for each in (queues, families)
    )
    ((waiting,),) = yield sql(plans, "suspects_wait", queues=listed, families=below, now=now)
    return bool(waiting)
