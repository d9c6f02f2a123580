"""What operators did: one row for each action, in the transaction that did it. For both databases.

An action about many messages takes many transactions and has one row: the first transaction writes it, the
others add to it, so that it always says how many have been changed so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from ..statement import Plan, single, statements
from ..values import instant
from .queries import Row, shape

sql = statements("audit")

FACTS = "queue stream position head status attempts failures vanished refunds reason claimable_at parked"
LINE = "number at who action queue target count was became why filter ids"
IDS_MAX = 100  # that are stored of an action about many


@dataclass(frozen=True, slots=True)
class Entry:
    """An action, without who did it and when. `target`: a message's id, a stream, a breaker."""

    action: str
    queue: str | None = None
    target: str | None = None
    count: int = 1
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    why: str | None = None
    filter: Mapping[str, Any] | None = None
    ids: Sequence[str] = ()


@single
def write(who: str, entry: Entry) -> Plan[int]:
    """Store an action; returns its number."""
    ((number,),) = yield sql(
        "audit_write",
        who=who,
        action=entry.action,
        queue=entry.queue,
        target=entry.target,
        count=entry.count,
        was=_text(entry.before),
        became=_text(entry.after),
        why=entry.why,
        filter=_text(entry.filter),
        ids=_text(list(entry.ids[:IDS_MAX]) or None),
    )
    return int(number)


@single
def add(number: int, entry: Entry) -> Plan[None]:
    """Add `count` more changes to the action with this number; its ids and `became` are those of the whole action."""
    yield sql(
        "audit_add",
        number=number,
        count=entry.count,
        became=_text(entry.after),
        ids=_text(list(entry.ids[:IDS_MAX]) or None),
    )


@single
def message_facts(seq: int) -> Plan[Row | None]:
    """What an operator may change about a message; None: it is not pending any more. Lock it before."""
    rows = yield sql("audit_facts", seq=seq)
    if not rows:
        return None
    found = shape(FACTS, rows)[0]
    return {**found, "parked": bool(found["parked"])}


@single
def stream_facts(queue: str, stream: str) -> Plan[Row | None]:
    rows = shape("open halted_by halted_at", (yield sql("audit_stream", queue=queue, stream=stream)))
    return rows[0] if rows else None


@single
def queue_facts(name: str) -> Plan[Row | None]:
    rows = shape("paused_at paused_why", (yield sql("audit_queue", name=name)))
    return rows[0] if rows else None


@single
def find(*, since: datetime | None, limit: int, **wanted: str | None) -> Plan[list[Row]]:
    """Actions that match, the newest first."""
    rows = shape(LINE, (yield sql("audit_find", since=since, limit=limit, **wanted)))
    for row in rows:
        row["at"] = instant(row["at"])
        for name in ("was", "became", "filter", "ids"):
            row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    return rows


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
