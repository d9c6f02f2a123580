"""Commands about whole queues, and housekeeping, for both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import Refused
from ..statement import Plan, Verb, single, statements
from ..values import BEGINNING, as_id, instant
from . import endpoints, engine, operator, outages, requests, scheduled
from .operator import TargetChanged, advance, ago, end, in_hands, moment
from .rows import Pruned

sql = statements("queues")


@single
def pause(name: str, why: str | None) -> Plan[None]:
    yield sql("op_queue_pause", name=name, why=why)


@single
def unpause(name: str) -> Plan[bool]:
    """Resume a queue. False: it was not paused."""
    return bool((yield sql("op_queue_resume", name=name)))


class Moved(NamedTuple):
    """The result of a batch: moved; already there, pending or dead; already ended there; dead there, its id taken."""

    moved: int
    here: int
    over: int
    taken: int


@single
def known(source: str, target: str) -> Plan[dict[int, str]]:
    """Which messages of a queue another one has already (`here`), or had and ended (`over`): one pass over history."""
    return dict((yield sql("op_queue_known", source=source, target=target)))


def move(source: str, target: str, limit: int, before: Mapping[int, str], since: Any) -> Plan[Moved]:
    """Move a batch of messages to another queue, each stream in its order, after the messages that are there.

    Messages that the other queue has, or has ended, end here. `before` is the result of one pass over the history at
    the moment `since`: for messages that ended later only the newest part of the history is read. If another message
    has the id, the moved one becomes a dead letter there.
    """
    batch = yield from _batch(source, limit)
    if not batch:
        return Moved(0, 0, 0, 0)
    seqs = [seq for seq, _, _ in batch]
    rows = yield sql("op_queue_later", target=target, seqs=list(seqs), since=since)
    later: dict[int, str] = dict(rows)
    states = {seq: later.get(seq) or before[seq] for seq in seqs if seq in later or seq in before}
    here, over = ([seq for seq, state in states.items() if state == each] for each in ("here", "over"))
    left = [seq for seq in seqs if seq not in states]
    taken = {seq for (seq,) in (yield sql("op_queue_twice", target=target, seqs=list(left)))}
    moved = [seq for seq in left if seq not in taken]
    for ended, why in ((here, f"queue {target} has it, too"), (over, f"it has ended in queue {target}")):
        if ended:
            listed = list(ended)
            yield operator.sql("op_ended", seqs=listed, outcome="cancelled", why=f"moved: {why}")
    if taken:
        yield Verb("operator", "bury_taken", (sorted(taken), target))
    copies = [seq for (seq,) in (yield sql("op_queue_move", seqs=list(moved), target=target))]
    now = yield from moment()
    yield from scheduled.put_by(copies, now)
    yield operator.sql("op_delete", seqs=list(seqs))
    # Rows of streams sorted, as everywhere: those of the queue whose name comes first.
    if target < source:
        yield Verb("operator", "place")
    yield from advance(_left(source, batch))
    if target > source:
        yield Verb("operator", "place")
    return Moved(len(moved), len(here), len(over), len(taken))


def empty(queue: str, limit: int) -> Plan[int]:
    """Discard a batch of messages of a queue that is dropped."""
    batch = yield from _batch(queue, limit)
    if batch:
        yield from end([seq for seq, _, _ in batch], "discarded")
        yield from advance(_left(queue, batch))
    return len(batch)


def _batch(queue: str, limit: int) -> Plan[list[tuple[int, str | None, int | None]]]:
    """Lock the next messages of a queue; raises Refused while a worker holds any message of the queue."""
    yield from engine.recover()
    yield from scheduled.recall_queue(queue, limit)
    rows = yield sql("op_queue_batch", queue=queue, limit=limit)
    batch = [(seq, stream, position) for seq, _, stream, position in rows]
    locked = yield sql("op_queue_lock", seqs=[seq for seq, _, _ in batch])
    leased = yield sql("op_queue_leased", queue=queue)
    if leased:
        live, until, worker, id = leased[0]
        if not live:
            raise TargetChanged
        raise Refused(in_hands(as_id(id), queue, worker, instant(until), None))
    if len(locked) < len(batch):
        raise TargetChanged
    return batch


def _left(queue: str, batch: Sequence[tuple[int, str | None, int | None]]) -> list[tuple[str, str, int]]:
    """How many of a batch leave the order of each stream."""
    counts = Counter(stream for _, stream, position in batch if stream is not None and position is not None)
    return [(queue, stream, counts[stream]) for stream in sorted(counts)]


@single
def unsubscribe(queue: str) -> Plan[list[str]]:
    """End the subscriptions of a queue; returns their patterns."""
    return [pattern for (pattern,) in (yield sql("op_queue_unsubscribe", queue=queue))]


@single
def forget_rename(queue: str) -> Plan[str | None]:
    """Free the old name of a renamed handler; returns the new name."""
    rows = yield sql("op_rename_forget", queue=queue)
    return rows[0][0] if rows else None


def forget(queue: str) -> Plan[bool]:
    """Remove a queue in which nothing is pending."""
    yield sql("op_queue_streams_forget", queue=queue)
    yield from endpoints.forget(queue)
    return bool((yield sql("op_queue_forget", queue=queue)))


# -- housekeeping

PRUNED = {
    "deaths": "op_prune_deaths",
    "dedupe": "op_prune_dedupe",
    "streams": "op_prune_streams",
    "workers": "op_prune_workers",
    "audit": "op_prune_audit",
    "alerts": "op_prune_alerts",
    "instances": "op_prune_instances",
    "outages": "op_prune_outages",
    "notes": "op_prune_notes",
}


OVERDUE = {"history": "op_overdue_history", "dedupe": "op_overdue_dedupe"}


def prune(what: str, age: float | None, limit: int, mark: Any = None) -> Plan[Pruned]:
    """Remove a batch of old rows, never pending work. `age` in seconds; `mark` of the batch before."""
    params: dict[str, object] = {"limit": limit}
    before = None
    if age is not None:
        before = params["before"] = yield from ago(age)
    if what == "history":
        pruned: Pruned = yield Verb("operator", "prune_history", (before, limit, mark))
        return pruned
    if what == "requests":
        assert before is not None
        return (yield from requests.prune(before, limit))
    if what == "streams":
        params["queue"], params["name"] = mark or ("", "")
    elif what == "dedupe":
        params["since"] = mark or BEGINNING
    elif what == "workers" and before is not None:
        yield from outages.keep(before)
    elif what == "outages":
        del params["limit"]  # there are few
    gone = yield sql(PRUNED[what], **params)
    if what == "workers":
        yield from endpoints.prune()
    elif what == "instances" and gone:
        yield sql("op_prune_journals", ids=[id for (id,) in gone])
        return Pruned(len(gone), True, None)  # how many a batch takes depends on their journals
    # Then those with a window of their own, which end by themselves.
    if what == "dedupe" and len(gone) < limit:
        own = yield sql("op_prune_windows", limit=limit)
        return Pruned(len(gone) + len(own), len(own) >= limit, mark)
    if what == "streams":
        mark = max(gone, default=None)
    elif what == "dedupe":
        mark = max((ended_at for (ended_at,) in gone), default=None)
    return Pruned(len(gone), len(gone) >= limit, mark)


def overdue(what: str, age: float) -> Plan[float]:
    """How many seconds cleaning is behind: how long the oldest row should have been gone. 0: it is not behind."""
    before = yield from ago(age)
    if what == "history":
        yield operator.sql("op_by_index")
    rows = yield sql(OVERDUE[what], before=before)
    return (before - instant(rows[0][0])).total_seconds() if rows else 0.0
