"""How long the own code of a turn may run: one second. A turn beyond it is stopped, and nothing of it is stored.

`Alarm` is for worker processes: a timer of the operating system raises `OverBudget` in the main thread, also inside
`while True`, `time.sleep` and a regular expression. `Watchdog` is for workers in a thread of somebody's application: it
raises the same from another thread, but cannot interrupt what waits inside C code. Since a Task may swallow the
exception, both set `spent`, which the loop looks at after each callback.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from ..clock import Monotonic, SystemClock

SECONDS = 1.0
AGAIN = 0.05  # seconds until the next one, for code that catches everything


class OverBudget(BaseException):
    """The code of a turn ran too long. Not an Exception, so that `except Exception` does not catch it."""


class Budget(Protocol):
    """Watches one turn at a time."""

    @property
    def spent(self) -> bool: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...


class Unlimited:
    """No limit: for tests, and for whoever debugs a turn."""

    spent = False

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass


class Alarm:
    """For the main thread of a worker process. `install` once; the handler and timer of others are put back."""

    def __init__(self, seconds: float = SECONDS, clock: Monotonic | None = None) -> None:
        self.seconds, self.clock = seconds, clock or SystemClock()
        self.spent = False
        self._armed = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._others: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def install(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def uninstall(self) -> None:
        signal.signal(signal.SIGALRM, self._before)

    def begin(self) -> None:
        self.spent, self._armed = False, True
        left, interval = signal.setitimer(signal.ITIMER_REAL, self.seconds, AGAIN)
        self._others = (left, interval, self.clock.monotonic() if left else 0.0)

    def end(self) -> None:
        self._armed = False  # first: an alarm from here on belongs to no turn
        left, interval, since = self._others
        if left:
            left = max(0.001, left - (self.clock.monotonic() - since))
        signal.setitimer(signal.ITIMER_REAL, left, interval)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self.spent = True
            raise OverBudget
        if callable(self._before):  # somebody else's timer
            self._before(number, frame)


class Watchdog:
    """For a worker in any other thread. `install` starts its own thread, `uninstall` ends it."""

    def __init__(self, seconds: float = SECONDS, clock: Monotonic | None = None) -> None:
        self.seconds, self.clock = seconds, clock or SystemClock()
        self.spent = False
        self._lock = threading.Lock()  # a plain one: the exception cannot come between taking and holding it
        self._until: float | None = None
        self._who = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def install(self) -> Watchdog:
        self._thread = threading.Thread(target=self._watch, name="holdfast-turn-watchdog", daemon=True)
        self._thread.start()
        return self

    def uninstall(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self) -> None:
        with self._lock:
            self.spent = False
            self._who, self._until = threading.get_ident(), self.clock.monotonic() + self.seconds

    def end(self) -> None:
        with self._lock:
            self._until = None
            if self.spent:  # take back what was not raised yet
                _raise_in(self._who, None)

    def _watch(self) -> None:
        """Looks a few times in a budget, so that a turn costs no wake-up of this thread; raises again at each look."""
        while not self._closing.wait(self.seconds / 4):
            with self._lock:
                if self._until is not None and self.clock.monotonic() >= self._until:
                    self.spent = True
                    _raise_in(self._who, OverBudget)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in another thread at its next bytecode; None takes back one that was not raised yet."""
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
