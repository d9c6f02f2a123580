"""What workers do once a minute besides their work: cleaning, and looking for outages and alerts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..rules.housekeeping import Rest
from ..telemetry.logs import Log
from . import Operations
from .cleaning import Cleaning

log = Log("holdfast.alerts")

STRETCHES = 12  # rounds of cleaning alone, each with a rest: about a minute


class Keeper:
    """Housekeeping of one process. Alerts are decided here and sent by a thread that nobody waits for.

    A sink that hangs must not delay a worker that stops. News that this process does not send is sent by another.
    """

    def __init__(self, operations: Callable[[], Operations]) -> None:
        self._operations = operations
        self._sending: threading.Thread | None = None
        self._cleaning = Cleaning()
        self._stretches = 0  # of cleaning alone, since the last complete round

    def __call__(self) -> Rest:
        """One round. Returns how long to rest at least, and whether there is more to clean.

        While there is more, most rounds only clean, every few seconds.
        """
        operations = self._operations()
        if self._stretches:
            return self._clean(operations)
        try:
            return self._clean(operations)
        finally:
            self._look_after(operations)

    def _clean(self, operations: Operations) -> Rest:
        rest = Rest(0.0, more=False)
        try:
            rest = operations.clean(self._cleaning)
            return rest
        finally:
            self._stretches = (self._stretches + 1) % STRETCHES if rest.more else 0

    def _look_after(self, operations: Operations) -> None:
        try:
            operations.chores()
        finally:
            try:
                operations.outages.look()
            finally:
                self._look_for_alerts(operations)

    def _look_for_alerts(self, operations: Operations) -> None:
        operations.alerts.look()
        if self._sending is None or not self._sending.is_alive():
            self._sending = threading.Thread(
                target=_send, args=(operations,), name="holdfast-alerts", daemon=True
            )
            self._sending.start()


def _send(operations: Operations) -> None:
    try:
        operations.alerts.send()
    except Exception as error:  # the next housekeeping tries again
        log.warning("alerts.unsent", "Alerts could not be sent: %(error)s", error=error)
