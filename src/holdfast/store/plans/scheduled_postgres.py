"""Brings over due messages on PostgreSQL: one call of a function."""

from __future__ import annotations

from datetime import datetime

from ..statement import Plan, statements
from .scheduled import Brought

sql = statements("scheduled")


class PostgresScheduled:
    """On PostgreSQL."""

    def bring(self, limit: int, size: int, since: datetime | None) -> Plan[Brought]:
        ((count, last, queues),) = yield sql("bring", count=limit, bytes=size, since=since)
        return Brought(count, last, tuple(queues or ()))
