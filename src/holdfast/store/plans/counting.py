"""How much is pending, for a page that must be fast: exact up to a limit, and "at least" beyond it.

A small table is counted exactly, in one scan. In a large one each state of each queue is counted through an index up to
a limit. In that case parked messages behind others count as waiting, and if there are many streams, blocked ones do.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from ..statement import Plan, statements
from . import queries
from .queries import shape

sql = statements("counting")

EXACT_ROWS = 30_000  # a table with more is not scanned
CAP = 100_000  # of one state in one queue
STREAMS_EXACT = 20_000
HEADS_MAX = 50_000  # of each queue that are read to find blocked streams

CAPPED = "queue ready retrying scheduled later parked suspect waiting streams oldest_at loops"


def blocked(limit: int) -> Plan[list[dict[str, Any]]]:
    """Streams that are halted or whose head cannot be claimed now: those with most behind the head first."""
    names = yield from _queues()
    return shape(queries.STREAM, (yield sql("streams_blocked", queues=names, cap=HEADS_MAX, limit=limit)))


def _queues() -> Plan[list[str]]:
    names = {name for (name,) in (yield sql("queues_with_heads"))}
    return sorted(names | {row["name"] for row in (yield from queries.queues())})


class Counted(NamedTuple):
    """Rows of `queries.counts`; the states of queues that were not counted to their end; what may be poison.

    `loops` is None if everything was counted: then use `queries.poison_count`.
    """

    rows: list[dict[str, Any]]
    more: frozenset[tuple[str, str]] = frozenset()
    loops: int | None = None


def counted(attempts: int) -> Plan[Counted]:
    """What is pending by queue and state. `attempts`: from how many on a message may be poison."""
    ((stored,),) = yield sql("rows_up_to", cap=EXACT_ROWS + 1)
    if stored <= EXACT_ROWS:
        all, beyond = yield from queries.counts_up_to(CAP)
        return Counted(all, frozenset(beyond))
    names = yield from _queues()
    rows = shape(CAPPED, (yield sql("capped", queues=names, cap=CAP, attempts=attempts)))
    found: Counter[tuple[str, str]] = Counter()
    more: set[tuple[str, str]] = set()
    oldest: dict[str, Any] = {}
    for row in rows:
        queue = row["queue"]
        oldest[queue] = row["oldest_at"]
        for state in ("ready", "retrying", "scheduled", "parked", "suspect", "waiting"):
            found[queue, state] = int(row[state])
        more |= {(queue, state) for state in ("ready", "parked", "suspect") if row[state] >= CAP}
        if row["later"] >= CAP:
            more |= {(queue, state) for state in ("retrying", "scheduled") if row[state]}
        if row["streams"] >= CAP:
            more.add((queue, "waiting"))
    yield from queries.leased_apart(found)
    if sum(row["streams"] for row in rows) <= STREAMS_EXACT:
        yield from queries.blocked_apart(found)
    more |= yield from queries.scheduled_too(found, oldest, CAP)
    return Counted(queries.counted_rows(found, oldest), frozenset(more), sum(row["loops"] for row in rows))
