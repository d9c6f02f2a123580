"""Registers a worker when it starts and removes it when it stops, and finds the outage that was open at its start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ..model.outage import Began, Due, Outage
from ..rules.outage import absent
from ..settings import Settings
from ..store import Store
from ..store.plans import outages
from ..telemetry.logs import Log
from ..telemetry.outages import log_began

log = Log("holdfast.worker")


class Attendance:
    """One worker's presence. `quarantine`: it takes only suspects, so it neither ends an outage nor notices one."""

    def __init__(self, store: Store, settings: Settings, name: str, *, quarantine: bool) -> None:
        self._store, self._settings, self._name, self._quarantine = store, settings, name, quarantine
        self.outage: Outage | None = None  # that was open when it came
        self.back_for: float | None = None  # seconds from the end of the absence until it came

    @property
    def down(self) -> tuple[datetime, datetime] | None:
        """Since when and until when no worker ran, if this worker knows of such a time."""
        each = self.outage
        if each is None or each.down_since is None or each.back_at is None:
            return None
        return each.down_since, each.back_at

    async def arrive(self, queues: Sequence[str]) -> int:
        """Register; returns the worker's number."""
        plan = outages.arrive(self._name, queues, self._settings.late, self._decided)
        number, self.outage, has_begun, now = await self._store.arun(plan)
        if self.outage is not None and self.outage.back_at is not None:
            self.back_for = max(0.0, (now - self.outage.back_at).total_seconds())
        if has_begun and self.outage is not None:
            log_began(self.outage)
        return number

    def _decided(self, due: Sequence[Due], now: datetime) -> Began | None:
        return None if self._quarantine else absent(due, self._settings.outage_after, now, is_back=True)

    async def back(self, queues: Sequence[str], seconds: float) -> None:
        """The database could not be used for so long, so no worker did any work in that time either."""
        if seconds < self._settings.outage_after or self._quarantine:
            return
        since = timedelta(seconds=seconds)
        plan = outages.returned(queues, since, self._settings.late, self._decided)
        found, has_begun = await self._store.arun(plan)
        self.outage = found or self.outage
        if has_begun and found is not None:
            log_began(found)

    async def leave(self, number: int) -> None:
        """Remove the worker, which holds nothing any more; it was present until now."""
        await self._store.arun(outages.leave(number))
