"""Locking requests on PostgreSQL, and the time while they are locked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ..statement import Plan
from .operator import moment
from .requests import Held, held, sql


class PostgresRequests:
    """The verbs of requests that are PostgreSQL's own."""

    def hold(self, ids: Sequence[UUID]) -> Plan[dict[UUID, Held]]:
        return held((yield sql("request_hold", ids=list(ids))))

    def moment(self) -> Plan[datetime]:
        """A statement of its own, so that its time is later than the locks."""
        return (yield from moment())
