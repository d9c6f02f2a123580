"""What workers do once a minute, beside their work: cleaning, and looking after alerts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..logs import Log
from . import Operations

log = Log("holdfast.alerts")


class Keeper:
    """Keeps house for one process. Alerts are decided here and told by a thread that nobody waits for.

    A sink that hangs must not hold up a worker that is told to stop: what it has not told, another process tells.
    """

    def __init__(self, operations: Callable[[], Operations]) -> None:
        self._operations = operations
        self._telling: threading.Thread | None = None

    def __call__(self) -> None:
        operations = self._operations()
        try:
            operations.housekeeping()
        finally:
            operations.alerts.look()
            if self._telling is None or not self._telling.is_alive():
                self._telling = threading.Thread(
                    target=_tell, args=(operations,), name="holdfast-alerts", daemon=True
                )
                self._telling.start()


def _tell(operations: Operations) -> None:
    try:
        operations.alerts.tell()
    except Exception as error:  # the next housekeeping tries again
        log.warning("alerts.untold", "Alerts could not be told: %(error)s", error=error)
