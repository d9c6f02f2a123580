"""The limits of our own connections to PostgreSQL: how long a statement, a lock and an open transaction may last."""

from __future__ import annotations

from ..statement import Plan, Query, single, statements

sql = statements("guards")


@single
def limits() -> Plan[dict[str, int]]:
    """The limits as the server has them, in milliseconds; 0: none."""
    return dict((yield sql("op_guards")))


def set_limits(lease: float) -> Query:
    """Set them for one transaction: behind a pooler a session is shared."""
    lease_ms = int(lease * 1000)
    return sql("guards", idle=str(lease_ms), lock=str(lease_ms), statement=str(lease_ms * 2))
