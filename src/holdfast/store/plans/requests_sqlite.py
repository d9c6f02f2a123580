"""Locking requests on SQLite, and the time while they are locked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from ...clock import from_micros
from ..statement import Plan
from .requests import Held, held, sql


class SqliteRequests:
    """The verbs of requests that are SQLite's own. `time` reads the clock of the store."""

    def __init__(self, time: Callable[[], int] | None = None) -> None:
        self._time = time

    def hold(self, ids: Sequence[UUID], now: int) -> Plan[dict[UUID, Held]]:
        """The first statement takes the write lock, if the caller's transaction does not have it yet."""
        yield sql("request_touch", ids=[str(id) for id in ids])
        return held((yield sql("request_look", ids=[str(id) for id in ids])))

    def moment(self, now: int) -> Plan[datetime]:
        """The time at this step: the plan may have waited for the lock since it began, which was at `now`."""
        yield from ()
        return from_micros(now if self._time is None else self._time())
