"""When a worker inside an application takes suspects.

No quarantine process runs there. At most once a lease the worker drains, and then takes suspects one at a time, for a
small part of its time.
"""

from __future__ import annotations

from ..model.work import Batch, Report
from ..rules.pacing import Pacing
from .role import Role

SHARE = 0.1  # of its time, at most, that it spends on suspects


class Suspects:
    """`wait`: a suspect waits for a worker that takes it."""

    def __init__(self, pacing: Pacing, lease: float, role: Role) -> None:
        self.wait = False
        self._pacing, self._lease, self._role = pacing, lease, role
        self._began_at = float("-inf")
        self._had_one = False

    def exchanged(self, report: Report, batch: Batch) -> None:
        if report.suspects and report.want:
            self._had_one = bool(batch.work)
        if report.peek:
            self.wait = batch.suspects

    def may_claim(self, now: float, asked_at: float) -> bool:
        """Whether to ask for work now; it decides here whether that is a suspect. `asked_at`: of the last exchange."""
        pacing = self._pacing
        if not self._role.embedded or self._role.quarantine:
            return True
        if pacing.quarantine:
            if pacing.idle and asked_at >= self._began_at:
                # It has ended. Take the next one, if there was one and the time spent is still short.
                more = self._had_one and now - self._began_at < SHARE * self._lease
                pacing.quarantine = more and not pacing.stopping
            return True
        was_lately = now - self._began_at < self._lease and not self._role.until_idle
        if not self.wait or was_lately or pacing.stopping:
            return True
        if pacing.idle:
            self._began_at, pacing.quarantine, self.wait = now, True, False
            self._had_one = False
        return pacing.idle
