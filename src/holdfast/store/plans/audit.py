"""What operators did: one row for each action, in the transaction that did it. For both databases.

An action about many messages takes many transactions and has one row all the same: the first transaction writes it, the
others add to it, so that it always says how many have been changed so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from ...clock import micros
from ..statement import Plan
from .engine import Plans, sql
from .engine_postgres import PostgresPlans
from .queries import Row, shape

FACTS = "queue stream position head status attempts failures vanished refunds reason claimable_at parked"
LINE = "number at who action queue target count was became why filter ids"
IDS_MAX = 100  # that are written down of an action about many


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


def write(plans: Plans, who: str, entry: Entry, now: Any) -> Plan[int]:
    """Write an action down; the answer is its number."""
    ((number,),) = yield sql(
        plans,
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
        now=now,
    )
    return int(number)


def add(plans: Plans, number: int, entry: Entry) -> Plan[None]:
    """The action with this number has changed `count` more; its ids and what became are those of the whole."""
    yield sql(
        plans,
        "audit_add",
        number=number,
        count=entry.count,
        became=_text(entry.after),
        ids=_text(list(entry.ids[:IDS_MAX]) or None),
    )


def message_facts(plans: Plans, seq: int) -> Plan[Row | None]:
    """What an operator may change about a message; None: it is not pending any more. Hold it still before."""
    rows = yield sql(plans, "audit_facts", seq=seq)
    if not rows:
        return None
    found = shape(plans, FACTS, rows)[0]
    return {**found, "parked": bool(found["parked"])}


def stream_facts(plans: Plans, queue: str, stream: str) -> Plan[Row | None]:
    rows = shape(
        plans, "open halted_by halted_at", (yield sql(plans, "audit_stream", queue=queue, stream=stream))
    )
    return rows[0] if rows else None


def queue_facts(plans: Plans, name: str) -> Plan[Row | None]:
    rows = shape(plans, "paused_at paused_why", (yield sql(plans, "audit_queue", name=name)))
    return rows[0] if rows else None


def find(plans: Plans, *, since: datetime | None, limit: int, **wanted: str | None) -> Plan[list[Row]]:
    """Actions that match, the newest first."""
    after = since if since is None or isinstance(plans, PostgresPlans) else micros(since)
    rows = shape(plans, LINE, (yield sql(plans, "audit_find", since=after, limit=limit, **wanted)))
    for row in rows:
        row["at"] = plans.moment(row["at"])
        for name in ("was", "became", "filter", "ids"):
            row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    return rows


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
