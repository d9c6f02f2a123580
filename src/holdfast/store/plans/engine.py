"""The verbs of a worker and of publishers. Where the two databases differ, it is a verb of their engines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ...errors import InvalidSettings
from ...model.message import Event, NewMessage, Published
from ...model.work import Batch, Report, Settlement
from ..statement import Plan, Query, Verb, single, statements
from ..values import instant

ADOPTED_AT_ONCE = 1000
Lease = tuple[int, int]  # the seq of the leased message, and its epoch

sql = statements("engine")


# -- publishing


def append(messages: Sequence[NewMessage], *, place: bool = False) -> Verb[list[Published]]:
    """Store messages. `place`: the transaction is our own and ends here, so streams are counted at once."""
    # Storing an event needs another statement, and so does looking up an id that the publisher gave.
    is_alone = not any(m.event or m.id_is_given for m in messages)
    return Verb("engine", "append", (messages,), {"place": place}, is_alone)


def adopt(count: int) -> Verb[int]:
    """Deliver unrouted messages to queues that subscribe to them now."""
    return Verb("engine", "adopt", (count,), is_alone=True)


@single
def read_events(stream: str, after: int, count: int) -> Plan[list[Event]]:
    """The events of a stream after a version, in order."""
    rows = yield sql("event_read", stream=stream, after=after, count=count)
    return [
        Event(stream, version, UUID(str(id)), type, subject, instant(created_at), headers, body)
        for version, id, type, subject, created_at, headers, body in rows
    ]


# -- subscribing


class Missing(NamedTuple):
    """What is not stored: queues and whether they keep order, subscriptions (pattern, queue), renames (old, new)."""

    queues: list[tuple[str, bool]]
    subscriptions: list[tuple[str, str]]
    renames: list[tuple[str, str]]


@single
def subscriptions() -> Plan[list[tuple[str, str]]]:
    """Who gets what: patterns and queues."""
    return [(pattern, queue) for pattern, queue in (yield sql("subscription_list"))]


@single
def renames() -> Plan[dict[str, str]]:
    """Handlers that have another name now: the old one, and the new one."""
    return dict((yield sql("rename_list")))


def unsubscribed(
    subscriptions: Mapping[str, Sequence[str]],
    unordered: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Plan[Missing]:
    """Which of these are not stored yet. The old name of a renamed handler is not missing, even if it is still used.

    Renames are read last: if the subscription of an old name is gone, the rename that removed it is found.
    """
    known = {(pattern, queue) for pattern, queue in (yield sql("subscription_list"))}
    found = {name: bool(ordered) for name, ordered in (yield sql("queue_names"))}
    gone = yield from renames()
    fresh = [(old, new) for old, new in sorted((renamed or {}).items()) if old not in gone]
    for old, new in fresh:
        if _comes_back(old, new, gone):
            raise InvalidSettings(
                f"Handler {new!r} says that it was renamed from {old!r}, but {new!r} was renamed to {gone[new]!r} "
                f"before. To use the name again: holdfast subscriptions drop {new}."
            )
    ordered = {queue: queue not in unordered for queue in sorted(subscriptions) if queue not in gone}
    pairs = [
        (p, q) for q, patterns in sorted(subscriptions.items()) if q not in gone for p in sorted(patterns)
    ]
    return Missing(
        [(queue, keeps) for queue, keeps in ordered.items() if found.get(queue) is not keeps],
        [pair for pair in pairs if pair not in known],
        fresh,
    )


def _comes_back(old: str, new: str, gone: Mapping[str, str]) -> bool:
    """Whether the renames that are stored lead from the new name to the old one."""
    for _ in range(len(gone)):
        if new == old or new not in gone:
            break
        new = gone[new]
    return new == old


def subscribe(
    subscriptions: Mapping[str, Sequence[str]],
    unordered: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Plan[int]:
    """Subscribe queues to types or prefixes; unrouted messages are adopted. Idempotent.

    `renamed` maps old names to new ones: in the same transaction the old queue is no longer subscribed.
    """
    queues, fresh, moved = yield from unsubscribed(subscriptions, unordered, renamed)
    for queue, ordered in queues:
        yield sql("queue_add", name=queue, ordered=ordered)
    for old, new in moved:
        yield sql("rename_add", old=old, new=new)
        yield Query(("queues/op_queue_unsubscribe",), {"queue": old})
    for pattern, queue in fresh:
        yield sql("subscription_add", pattern=pattern, queue=queue)
    adopted, last = 0, ADOPTED_AT_ONCE if fresh else 0
    # Adopt all of them now: messages published from now on are placed behind them.
    while last == ADOPTED_AT_ONCE:
        last = yield from adopt(ADOPTED_AT_ONCE)
        adopted += last
    return adopted


# -- the worker's turn


def exchange(report: Report) -> Verb[Batch]:
    """One turn of a worker: results in, new work out. Ids that handlers gave are looked up in an earlier statement."""
    return Verb("engine", "exchange", (report,), is_alone=True)


def settle(settlements: Sequence[Settlement], moves: Iterable[tuple[int, int]]) -> Verb[set[int]]:
    """Apply the settlements whose lease is still valid; returns their seqs."""
    return Verb("engine", "settle", (settlements, moves))


def renew(worker: int, leases: Sequence[Lease], lease: float) -> Verb[tuple[set[int], set[int]]]:
    """The heartbeat: renew leases. Returns those that are lost, and those that are asked to be cancelled."""
    return Verb("engine", "renew", (worker, leases, lease), is_alone=True)


@single
def progress(said: Mapping[tuple[int, int], str]) -> Plan[None]:
    """The reported progress of the handlers under these leases (seq, epoch). For lost leases nothing is stored."""
    yield sql(
        "lease_progress",
        seq=[seq for seq, _ in said],
        epoch=[epoch for _, epoch in said],
        progress=list(said.values()),
    )


def recover(
    *,
    worker: int | None = None,
    running: Sequence[int] = (),
    ended: Sequence[int] = (),
    known: Sequence[int] = (),
    count: int = 1000,
) -> Verb[int]:
    """End leases that their holder will not end: expired ones, or those of one worker."""
    options = {"worker": worker, "running": running, "ended": ended, "known": known, "count": count}
    return Verb("engine", "recover", (), options, is_alone=True)


# -- workers and their leases


@single
def register_worker(name: str, queues: Sequence[str]) -> Plan[int]:
    """Register a worker; returns its number."""
    ((number,),) = yield sql("worker_register", name=name, queues=list(queues))
    return int(number)


@single
def announce_stop(worker: int) -> Plan[None]:
    """Record that a worker is stopping: its messages do not become suspects."""
    yield sql("worker_stopping", worker=worker)


@single
def note_trouble(worker: int, story: str, timeouts: int, restarts: int = 0) -> Plan[None]:
    """Store the trouble that a worker had with its database: for the doctor."""
    yield sql("worker_trouble", worker=worker, story=story[:500], timeouts=timeouts, restarts=restarts)


@single
def retire_worker(worker: int) -> Plan[None]:
    """Remove a worker that holds nothing any more."""
    yield sql("worker_retire", worker=worker)


def standing(worker: int) -> Plan[set[Lease]]:
    """The leases that a worker really holds. Waits until an exchange in flight has ended."""
    yield sql("exchange_end", worker=worker)
    return {(seq, epoch) for seq, epoch in (yield sql("worker_leases", worker=worker))}


def look_at_leases(seqs: Sequence[int]) -> Plan[tuple[set[Lease], bool]]:
    """Which of these leases are valid, and whether an open transaction is about to change one of them."""
    free = {(seq, epoch) for seq, epoch in (yield sql("leases_free", seqs=list(seqs)))}
    found = {(seq, epoch) for seq, epoch in (yield sql("leases_standing", seqs=list(seqs)))}
    return found, found != free


@single
def refuse() -> Plan[None]:
    """Make the transaction fail, where a database can do that, so that it is not committed by mistake."""
    yield sql("refuse")


@single
def suspects_wait(queues: Sequence[str], families: Sequence[str] = ()) -> Plan[bool]:
    """Whether a message of these queues, or of those below these families, waits for the quarantine."""
    ((waiting,),) = yield sql("suspects_wait", queues=list(queues), families=list(families))
    return bool(waiting)
