"""What an operator may order about whole queues, and the cleaning that needs no operator, for both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from ...clock import from_micros
from ...errors import Refused
from ..statement import Plan
from . import engine_sqlite as plans_sqlite
from .engine import Plans, sql
from .engine_postgres import PostgresPlans
from .operator import OrderMoved, advance, ago, as_id, at, end, in_hands, many


def pause(plans: Plans, name: str, why: str | None, now: Any) -> Plan[None]:
    yield sql(plans, "op_queue_pause", name=name, why=why, now=now)


def unpause(plans: Plans, name: str) -> Plan[bool]:
    """False: the queue was not paused."""
    return bool((yield sql(plans, "op_queue_resume", name=name)))


class Moved(NamedTuple):
    """What became of a batch: moved; there already, pending or dead; ended there already; dead there, its id taken."""

    moved: int
    here: int
    over: int
    taken: int


def known(plans: Plans, source: str, target: str) -> Plan[dict[int, str]]:
    """Which messages of a queue another one has already (`here`), or had and ended (`over`): one pass over history."""
    return dict((yield sql(plans, "op_queue_known", source=source, target=target)))


def move(
    plans: Plans, source: str, target: str, limit: int, before: Mapping[int, str], since: Any, now: Any
) -> Plan[Moved]:
    """A batch of messages goes to another queue, each stream in its order, behind what is there.

    What that queue has, or has ended, ends here. `before` is what was known of that at the moment `since`, by one pass
    over the history: of what ended later only the newest part of the history is looked at. Where another message has
    the id, it becomes a dead letter there.
    """
    batch = yield from _batch(plans, source, limit, now)
    if not batch:
        return Moved(0, 0, 0, 0)
    seqs = [seq for seq, _, _ in batch]
    rows = yield sql(plans, "op_queue_later", target=target, seqs=many(plans, seqs), since=since)
    later: dict[int, str] = dict(rows)
    states = {seq: later.get(seq) or before[seq] for seq in seqs if seq in later or seq in before}
    here, over = ([seq for seq, state in states.items() if state == each] for each in ("here", "over"))
    left = [seq for seq in seqs if seq not in states]
    taken = {seq for (seq,) in (yield sql(plans, "op_queue_twice", target=target, seqs=many(plans, left)))}
    moved = [seq for seq in left if seq not in taken]
    for ended, why in ((here, f"queue {target} has it, too"), (over, f"it has ended in queue {target}")):
        if ended:
            listed = many(plans, ended)
            yield sql(plans, "op_ended", seqs=listed, outcome="cancelled", why=f"moved: {why}", now=now)
    if taken:
        yield from _bury(plans, sorted(taken), target, now)
    yield sql(plans, "op_queue_move", seqs=many(plans, moved), target=target, now=now)
    yield sql(plans, "op_delete", seqs=many(plans, seqs))
    # Rows of streams sorted, as everywhere: those of the queue whose name comes first.
    if target < source:
        yield from _place(plans, now)
    yield from advance(plans, _left(source, batch), now)
    if target > source:
        yield from _place(plans, now)
    return Moved(len(moved), len(here), len(over), len(taken))


def _bury(plans: Plans, seqs: Sequence[int], target: str, now: Any) -> Plan[None]:
    listed = many(plans, seqs)
    if isinstance(plans, PostgresPlans):
        yield plans.sql("op_queue_taken", seqs=listed, target=target, keep=plans.errors_kept, now=now)
    else:
        moment = from_micros(now).isoformat()
        yield plans_sqlite.sql("op_queue_taken", seqs=listed, target=target, at=moment, now=now)


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
