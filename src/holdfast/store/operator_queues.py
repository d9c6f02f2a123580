"""What an operator may order about whole queues, and the cleaning that needs no operator, for both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..errors import Refused
from .operator_plans import OrderMoved, advance, ago, as_id, at, end, in_hands, many
from .plans import Plans, sql
from .plans_postgres import PostgresPlans
from .statement import Plan


def pause(plans: Plans, name: str, why: str | None, now: Any) -> Plan[None]:
    yield sql(plans, "op_queue_pause", name=name, why=why, now=now)


def unpause(plans: Plans, name: str) -> Plan[bool]:
    """False: the queue was not paused."""
    return bool((yield sql(plans, "op_queue_resume", name=name)))


def move(plans: Plans, source: str, target: str, limit: int, now: Any) -> Plan[tuple[int, int]]:
    """A batch of messages goes to another queue, each stream in its order, behind what is there.

    The answer: how many went, and how many were ended because the same message is pending there anyway.
    """
    batch = yield from _batch(plans, source, limit, now)
    if not batch:
        return 0, 0
    seqs = [seq for seq, _, _ in batch]
    twice = {seq for (seq,) in (yield sql(plans, "op_queue_twice", target=target, seqs=many(plans, seqs)))}
    moved = [seq for seq in seqs if seq not in twice]
    if twice:
        yield sql(plans, "op_ended", seqs=many(plans, sorted(twice)), outcome="cancelled", now=now)
    yield sql(plans, "op_queue_move", seqs=many(plans, moved), target=target, now=now)
    yield sql(plans, "op_delete", seqs=many(plans, seqs))
    # Rows of streams sorted, as everywhere: those of the queue whose name comes first.
    if target < source:
        yield from _place(plans, now)
    yield from advance(plans, _left(source, batch), now)
    if target > source:
        yield from _place(plans, now)
    return len(moved), len(twice)


def empty(plans: Plans, queue: str, limit: int, now: Any) -> Plan[int]:
    """A batch of messages of a queue that is dropped ends as discarded."""
    batch = yield from _batch(plans, queue, limit, now)
    if batch:
        yield from end(plans, [seq for seq, _, _ in batch], "discarded", now)
        yield from advance(plans, _left(queue, batch), now)
    return len(batch)


def _batch(plans: Plans, queue: str, limit: int, now: Any) -> Plan[list[tuple[int, str | None, int | None]]]:
    """The next messages of a queue, locked; refused while a worker holds any message of the queue."""
    yield from plans.recover(now)
    rows = yield sql(plans, "op_queue_batch", queue=queue, limit=limit)
    batch = [(seq, stream, position) for seq, _, stream, position in rows]
    locked = yield sql(plans, "op_queue_lock", seqs=many(plans, [seq for seq, _, _ in batch]))
    leased = yield sql(plans, "op_queue_leased", queue=queue, now=now)
    if leased:
        live, until, worker, id = leased[0]
        if not live:
            raise OrderMoved
        raise Refused(in_hands(as_id(id), queue, worker, at(plans, until), None))
    if len(locked) < len(batch):
        raise OrderMoved
    return batch


def _left(queue: str, batch: Sequence[tuple[int, str | None, int | None]]) -> list[tuple[str, str, int]]:
    """How many of a batch leave the order of which stream."""
    counts = Counter(stream for _, stream, position in batch if stream is not None and position is not None)
    return [(queue, stream, counts[stream]) for stream in sorted(counts)]


def _place(plans: Plans, now: Any) -> Plan[None]:
    if isinstance(plans, PostgresPlans):
        yield plans.sql("op_place", now=now)
    else:
        yield from plans.place(now)


def unsubscribe(plans: Plans, queue: str) -> Plan[list[str]]:
    """New messages do not go to a queue any more; the answer lists the patterns."""
    return [pattern for (pattern,) in (yield sql(plans, "op_queue_unsubscribe", queue=queue))]


def forget(plans: Plans, queue: str) -> Plan[bool]:
    """A queue in which nothing is pending is forgotten."""
    yield sql(plans, "op_queue_streams_forget", queue=queue)
    return bool((yield sql(plans, "op_queue_forget", queue=queue)))


# -- housekeeping

PRUNED = {
    "history": "op_prune_history",
    "deaths": "op_prune_deaths",
    "dedupe": "op_prune_dedupe",
    "streams": "op_prune_streams",
    "workers": "op_prune_workers",
    "audit": "op_prune_audit",
    "alerts": "op_prune_alerts",
}


OVERDUE = {"history": "op_overdue_history", "dedupe": "op_overdue_dedupe"}
PAGE_LINES = 16  # a page of history holds some sixty lines; a batch may have a few times as many as others


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a batch removed. `mark`: where the next one goes on."""

    count: int
    more: bool
    mark: Any = None


def prune(plans: Plans, what: str, age: float | None, limit: int, now: Any, mark: Any = None) -> Plan[Pruned]:
    """A batch of what is not needed any more goes, never work. `age` in seconds; `mark` of the batch before."""
    params: dict[str, object] = {"limit": limit}
    before = None
    if age is not None:
        before = params["before"] = yield from ago(plans, age, now)
    if what == "history" and isinstance(plans, PostgresPlans):
        return (yield from _prune_history(plans, before, limit, mark))
    if what == "streams":
        params["queue"], params["name"] = mark or ("", "")
    elif what == "dedupe":
        params["since"] = mark or ("-infinity" if isinstance(plans, PostgresPlans) else -(2**62))
    gone = yield sql(plans, PRUNED[what], **params)
    if what == "streams":
        mark = max(gone, default=None)
    elif what == "dedupe":
        mark = max((ended_at for (ended_at,) in gone), default=None)
    return Pruned(len(gone), len(gone) >= limit, mark)


def _prune_history(plans: PostgresPlans, before: Any, limit: int, page: int | None) -> Plan[Pruned]:
    """The index finds the first old line, and from there it goes from page to page as long as there are others."""
    yield plans.sql("op_by_index")
    if page is None:
        found = yield plans.sql("op_prune_history_from", before=before)
        if not found:
            return Pruned(0, more=False)
        page = int(found[0][0])
    pages = max(1, limit // PAGE_LINES)
    gone = yield plans.sql("op_prune_history", page=page, pages=pages, before=before)
    return Pruned(len(gone), more=True, mark=page + pages if gone else None)


def overdue(plans: Plans, what: str, age: float, now: Any) -> Plan[float]:
    """For how many seconds the oldest has been beyond its age: how far cleaning is behind. 0: it is not."""
    before = yield from ago(plans, age, now)
    if what == "history" and isinstance(plans, PostgresPlans):
        yield plans.sql("op_by_index")
        rows = [(ended_at,) for _, ended_at in (yield plans.sql("op_prune_history_from", before=before))]
    else:
        rows = list((yield sql(plans, OVERDUE[what], before=before)))
    if not rows:
        return 0.0
    late = before - rows[0][0]
    return late.total_seconds() if isinstance(late, timedelta) else late / 1_000_000
