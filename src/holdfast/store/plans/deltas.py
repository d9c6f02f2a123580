"""Deltas: rows that settlements store in other tables, in the same commit and under the same fence.

An applier has a name. On PostgreSQL it is the function `apply_NAME(rows json, now timestamptz)`, called inside
`settle`; on SQLite it is the statement `apply_NAME`, with the rows as JSON in `:rows` and the time in `:now`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model.work import Settlement
from ..statement import Plan, Statement
from ..text import load
from ..values import encode
from .settling import message_fence


def deltas_postgres(settlements: Sequence[Settlement]) -> str | None:
    """The deltas with the leases that they need; None if there are none, which is the usual case."""
    found = [(message_fence(each), each.delta) for each in settlements if each.delta is not None]
    if not found:
        return None
    return encode(
        [
            {"by": seq, "run": run, "epoch": epoch, "applier": delta.applier, "rows": delta.rows}
            for (seq, run, epoch), delta in found
        ]
    )


def apply_sqlite(stood: Sequence[Settlement], appliers: Mapping[str, str], now: int) -> Plan[None]:
    """Apply the deltas of settlements whose leases are valid. `appliers` come before those of the package."""
    rows: dict[str, list[Any]] = {}
    for each in stood:
        if each.delta is not None:
            rows.setdefault(each.delta.applier, []).extend(each.delta.rows)
    for name in sorted(rows):
        text = appliers.get(name) or load("sqlite", (f"deltas/apply_{name}",))
        yield Statement(text, {"rows": encode(rows[name]), "now": now})
