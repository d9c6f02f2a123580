"""Where turns find what they need, and what the turns of one application share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from ..clock import Clock, wall_clock
from ..settings import Settings
from ..store import Store
from ..store.plans.instances import Stand
from .activities import ActivityConsumer
from .budget import Alarm, Budget, Watchdog
from .cache import Cache
from .declared import Activity
from .messages import Pen
from .parts import Parts
from .selfcheck import Sampling
from .turn import Instance


class Memory:
    """What the turns of one application share: live instances, and a budget for each thread."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.is_embedded = True
        self.forgets = False  # in tests: each turn replays the journal from its beginning
        self.sampling = Sampling()
        self._lock = threading.Lock()
        self._budgets: dict[int, Budget] = {}
        self._parts: WeakKeyDictionary[asyncio.AbstractEventLoop, Parts] = WeakKeyDictionary()

    def take(self, id: str, stand: Stand) -> Instance | None:
        with self._lock:
            found = self.cache.take(id, stand.execution, stand.turn)
        if found is not None and found.mark != str(stand.mark):
            found.close()
            return None
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

    def now(self) -> datetime:
        return self.clock().now() or wall_clock()
