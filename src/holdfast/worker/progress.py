"""The progress that activities have reported, until the next heartbeat stores it with the leases."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..rules.lanes import Fence

Text = Callable[[], str]  # made when it is stored: an activity may report more often than anybody reads


class ProgressNotes:
    """The newest report of each lease. Handlers in threads write it, the heartbeat takes it."""

    def __init__(self) -> None:
        self._notes: dict[Fence, Text] = {}
        self._lock = threading.Lock()

    def report(self, fence: Fence, text: Text) -> None:
        with self._lock:
            self._notes[fence] = text

    def take(self) -> dict[Fence, Text]:
        if not self._notes:  # the usual case
            return {}
        with self._lock:
            taken, self._notes = self._notes, {}
        return taken

    def put_back(self, taken: dict[Fence, Text]) -> None:
        """They could not be stored. Newer reports win."""
        with self._lock:
            self._notes = taken | self._notes
