"""The heartbeat: a thread with a connection of its own, so that code that blocks the loop does not lose its leases."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..clock import Clock
from ..errors import StoreUnavailable
from ..rules import holding
from ..rules.lanes import Fence, Lane
from ..rules.pacing import Pacing
from ..settings import Settings
from ..store import Store
from ..store.plans import engine
from ..telemetry.logs import Log
from .progress import ProgressNotes
from .trouble import Trouble

log = Log("holdfast.worker")

Asked = list[tuple[Lane, tuple[Fence, ...]]]
OnRenewed = Callable[[Asked, set[int], set[int], float], None]


class Heartbeat(threading.Thread):
    """Renews the worker's leases, and reports to it those that are lost or that an operator wants cancelled."""

    def __init__(
        self,
        store: Store,
        pacing: Pacing,
        settings: Settings,
        clock: Clock,
        worker: int,
        on_renewed: OnRenewed,
        trouble: Trouble,
        progress: ProgressNotes,
    ) -> None:
        super().__init__(name="holdfast-heartbeat", daemon=True)
        self.store, self.pacing, self.clock = store, pacing, clock
        self.seconds, self.lease = settings.heartbeat, settings.lease
        self.worker, self.on_renewed, self.trouble, self.progress = worker, on_renewed, trouble, progress
        self._over = threading.Event()

    def run(self) -> None:
        wait = self.seconds
        while not self._over.wait(wait):
            # After a failed beat the next one comes soon: a lease lasts only a few beats.
            wait = self.seconds if self._beat() else self.seconds / 10

    def stop(self) -> None:
        self._over.set()

    def _beat(self) -> bool:
        asked_at = self.clock.monotonic()
        asked = holding.leases(self.pacing, asked_at)
        fences = [fence for _, fences in asked for fence in fences]
        said = self.progress.take()
        try:
            lost, cancelled = self.store.run(engine.renew(self.worker, fences, self.lease))
            if said:
                self.store.run(engine.progress({fence: text() for fence, text in said.items()}))
        except (
            StoreUnavailable
        ) as error:  # the worker stops handlers whose leases expire; the next beat tries again
            self.progress.put_back(said)
            self.trouble.met("heartbeat", error)
            return False
        except Exception as error:
            log.warning("heartbeat.failed", "A heartbeat failed: %(error)s", error=error)
            return False
        self.trouble.over("heartbeat")
        if not self._over.is_set():
            self.on_renewed(asked, lost, cancelled, asked_at)
        return True
