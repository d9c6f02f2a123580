"""Stores scheduled messages on SQLite, and brings over due ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ...clock import from_micros
from ..statement import Plan, Query, statements
from ..values import encode
from .scheduled import SOON, Brought
from .tallies_sqlite import Budget

SOON_MICROS = int(SOON.total_seconds()) * 1_000_000

sql = statements("scheduled")


def is_later(row: Mapping[str, Any], now: int) -> bool:
    """Whether a new message with a time of its own is stored in `scheduled`."""
    due: int = row["due"]
    return due > (now if row["stream"] is not None else now + SOON_MICROS)


def store_later(rows: Sequence[Mapping[str, Any]]) -> Plan[None]:
    yield sql("scheduled_append", messages=encode(rows))
    yield sql("scheduled_numbers")


class SqliteScheduled:
    """On SQLite."""

    def bring(self, limit: int, size: int, since: datetime | None, now: int) -> Plan[Brought]:
        budget = Budget(size)
        rows = yield sql("bring_due", count=limit).until(lambda row: budget.spend(row[3]))
        if not rows:
            return Brought(0)
        seqs = encode([row[0] for row in rows])
        routes = yield sql("bring_routes", seqs=seqs)
        taken = [(seq, queue) for seq, queue, is_taken in routes if is_taken]
        stored = [(seq, queue) for seq, queue, is_taken in routes if not is_taken]
        if taken:
            yield sql("bring_dead", places=encode(taken), at=from_micros(now).isoformat())
        yield sql("bring_store", places=encode(stored))
        yield sql("scheduled_gone", seqs=encode([row[0] for row in rows]))
        if any(row[2] for row in rows):
            yield from place_in_time()
        queues = {queue for _, queue in stored if queue is not None}
        return Brought(len(rows), from_micros(rows[-1][1]), tuple(sorted(queues)))


def place_in_time() -> Plan[None]:
    """Messages that were just stored enter the order of their streams. Their time stays as it is."""
    yield Query(("engine/place_streams",))
    heads = yield Query(("engine/place_heads",))
    yield Query(("schedules/fire_place",), {"heads": encode([seq for (seq,) in heads])})
