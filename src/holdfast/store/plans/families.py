"""Families of queues: which of the queues below a name have work. Part of an exchange."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model.names import BELOW
from ...model.work import Found, Look
from ..statement import Plan, statements

sql = statements("families")

NEVER = 9_223_372_036_854_775_807  # on SQLite: no time, or no limit


def look_sqlite(
    looks: Sequence[Look], paused: frozenset[str], now: int
) -> Plan[tuple[dict[str, Found], int]]:
    """Which queues have work, and when the next head of the others is due."""
    found: dict[str, Found] = {}
    due = NEVER
    for look in looks:
        count, after = look.count or NEVER, look.after or look.family + BELOW
        rows = yield sql("look", family=look.family, after=after, count=count)
        open_ = [(name, at) for name, at in rows if name not in paused]
        due = min([due, *(at for _, at in open_ if at > now)])
        last = rows[-1][0] if len(rows) == count else None
        found[look.family] = Found(tuple(name for name, at in open_ if at <= now), last)
    return found, due


def looks_postgres(looks: Sequence[Look]) -> dict[str, object]:
    """The parameters of an exchange that say where to look."""
    if not looks:
        return dict.fromkeys(("family", "family_after", "family_count", "without"))
    return {
        "family": [each.family for each in looks],
        "family_after": [each.after for each in looks],
        "family_count": [each.count for each in looks],
        "without": [queue for each in looks for queue in each.without],
    }


def found_postgres(text: str | None) -> dict[str, Found]:
    """The result of `look`: which queues of each family have work."""
    if text is None:
        return {}
    return {
        family: Found(tuple(queues), last, took) for family, queues, last, took in msgspec.json.decode(text)
    }
