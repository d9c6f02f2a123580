"""Where turns find what they need, and what the turns of one application share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary, finalize

from ..clock import Clock, micros, wall_clock, wall_micros
from ..rules import journals
from ..settings import Settings
from ..store import Store
from ..store.plans.instances import Stand
from ..telemetry.logs import Log
from .activities import ActivityConsumer
from .budget import Alarm, Budget, Watchdog
from .cache import Cache
from .declared import Activity
from .messages import Pen
from .outcome import Turn
from .parts import Parts
from .selfcheck import Sampling
from .skips import Skips
from .turn import Instance

log = Log("holdfast.orchestrations")


class Memory:
    """What the turns of one application share: live instances, and a budget for each thread."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.is_embedded = True
        self.forgets = False  # in tests: each turn replays the journal from its beginning
        self.foresees = True  # whether workers of activities run the next turn ahead (foreseeing.py)
        self.skips = Skips()
        self.quick: dict[str, bool] = {}  # inline activities that have run: whether each answered at once
        self.sampling = Sampling()
        self._lock = threading.Lock()
        self._budgets: dict[int, Budget] = {}
        self._parts: WeakKeyDictionary[asyncio.AbstractEventLoop, Parts] = WeakKeyDictionary()
        # A program may end without `app.close()`: the garbage collector would find tasks that still wait.
        finalize(self, self.cache.clear)

    def take(self, id: str, stand: Stand) -> Instance | None:
        with self._lock:
            found = self.cache.take(id, stand.execution, stand.turn)
        if found is not None and found.mark != str(stand.mark):
            found.close()
            return None
        if found is not None:
            found.watched_by(self.budget())
        return found

    def take_awaiting(self, id: str, execution: int, number: int, key: tuple[str, str]) -> Instance | None:
        """The instance, if it waits for this call and for nothing else but timers and signals, and no parent for it.

        None if the next turn is to be checked, or if those like it were run ahead in vain: it comes by its message.
        """
        if not self.foresees:
            return None
        with self._lock:
            found = self.cache.look(id)
            if found is None or found.execution != execution or not found.awaits_only(number):
                return None
            if not self.skips.is_due(key) or not self.sampling.passes():
                return None
            found = self.cache.take(id, execution, found.turns)
        if found is not None:
            found.watched_by(self.budget())
        return found

    def keep(self, instance: Instance) -> None:
        if self.forgets:
            instance.close()
            return
        with self._lock:
            self.cache.put(instance)

    def forget(self) -> None:
        with self._lock:
            self.cache.clear()

    def budget(self) -> Budget:
        """That of this thread: an alarm in the main thread of a worker process, else a watchdog."""
        who = threading.get_ident()
        if (found := self._budgets.get(who)) is None:
            is_main = threading.current_thread() is threading.main_thread()
            found = Alarm().install() if is_main and not self.is_embedded else Watchdog().install()
            self._budgets[who] = found
        return found

    def parts(self, store: Callable[[], Store]) -> Parts:
        """Where the turns of this thread's loop store their parts, together."""
        loop = asyncio.get_running_loop()
        if (found := self._parts.get(loop)) is None:
            found = self._parts[loop] = Parts(store)
        return found


@dataclass(frozen=True)
class Place:
    """Where turns find what they need: the application's store and clock may be others in its tests."""

    store: Callable[[], Store]
    clock: Callable[[], Clock]
    settings: Settings
    pen: Pen
    memory: Memory
    activities: dict[str, Activity[..., Any]] = field(default_factory=dict)  # by name
    served: dict[str, ActivityConsumer] = field(default_factory=dict)  # the same, as workers call them

    def length(self, events: int, size: int) -> journals.Length:
        """How long a journal with so many events and bytes is."""
        return journals.length(events, size, self.settings.journal_events, self.settings.journal_bytes)

    def warn_if_long(self, queue: str, turn: Turn, before: tuple[int, int]) -> None:
        """Log it if this turn has made the journal long. `before`: its events and bytes."""
        after, settings = (turn.entries, turn.size), self.settings
        if turn.end is None and journals.warns(
            before, after, settings.journal_events, settings.journal_bytes
        ):
            log.warning(
                "orchestration.long",
                "The journal of instance %(instance)s of %(queue)s has %(events)d events and %(bytes)d bytes: at five "
                "times as many it is paused. Let what runs for ever continue as new (flow.again).",
                instance=turn.row.id, queue=queue, events=turn.entries, bytes=turn.size,
            )  # fmt: skip

    def now(self) -> datetime:
        return self.clock().now() or wall_clock()

    def now_micros(self) -> int:
        now = self.clock().now()
        return wall_micros() if now is None else micros(now)
