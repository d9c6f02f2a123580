"""`holdfast worker`: a parent that works not itself but keeps 1..N worker processes alive, and a quarantine.

When a child dies, the parent reads from the board (memory they share) what it had begun, and reports that to the
store at once: what was running is a suspect, the rest goes back. While suspects wait, one more child runs, the
quarantine, which takes them one at a time and nothing else: if it dies too, the culprit is known.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from .board import Board
from .errors import StoreUnavailable
from .store import plans

if TYPE_CHECKING:
    from .app import Holdfast

log = logging.getLogger("holdfast.supervisor")

LOOK = 0.05  # seconds between looks at the children
SUSPECTS_LOOK = 0.5
RESTART_MAX = 5.0


@dataclass
class Child:
    """One worker process and the board it writes on."""

    board: Board
    quarantine: bool
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause: float = 0.0  # before it is started again
    died_at: float = 0.0


@dataclass
class Death:
    """A death that the store has not been told of yet."""

    worker: int
    running: list[int]
    ended: list[int]


@dataclass
class Supervisor:
    """Starts children, notices their deaths, and passes the word to stop on to them."""

    app: Holdfast
    target: str
    processes: int = 1
    queues: Sequence[str] | None = None
    children: list[Child] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    stops: int = 0
    _looked_at: float = float("-inf")
    _pause: threading.Event = field(default_factory=threading.Event)  # never set: a sleep that signals may interrupt

    def run(self) -> int:
        """Work until told to stop; the exit code."""
        self.app.prepare()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        capacity = 2 * self.app.settings.claim + self.app.settings.concurrency
        self.children = [Child(Board.create(capacity), False) for _ in range(self.processes)]
        quarantine = Child(Board.create(4), True)
        clock = self.app.clock
        alive, write = os.pipe()  # closed by our death, however it comes: the children read its end
        try:
            while not (self.stops and not self._alive(quarantine)):
                now = clock.monotonic()
                for child in self.children:
                    self._look_after(child, alive, now)
                self._look_after_quarantine(quarantine, alive, now)
                self._tell_deaths()
                self._pause.wait(LOOK)
        finally:
            os.close(write)
            os.close(alive)
            for child in (*self.children, quarantine):
                child.board.close()
        self._tell_deaths()
        self.app.close()
        return 0

    def _alive(self, quarantine: Child) -> bool:
        for child in (*self.children, quarantine):
            self._reap(child, self.app.clock.monotonic())
        return any(child.process is not None for child in (*self.children, quarantine))

    def _look_after(self, child: Child, alive: int, now: float) -> None:
        self._reap(child, now)
        if child.process is None and not self.stops and now >= child.died_at + child.pause:
            self._start(child, alive, now)

    def _look_after_quarantine(self, child: Child, alive: int, now: float) -> None:
        self._reap(child, now)
        if child.process is not None or self.stops or now - self._looked_at < SUSPECTS_LOOK:
            return
        self._looked_at = now
        queues = list(self.queues or self.app.handlers.subscriptions())
        try:
            waiting = self.app.store.run(lambda at: plans.suspects_wait(self.app.store.plans, queues, at), one=True)
        except StoreUnavailable:
            return
        if waiting:
            self._start(child, alive, now)

    def _start(self, child: Child, alive: int, now: float) -> None:
        child.board.wipe(0)
        command = [sys.executable, "-m", "holdfast.child", self.target, str(child.board.fileno), str(child.board.capacity), str(alive)]
        if child.quarantine:
            command.append("--quarantine")
        if self.queues:
            command.append("--queues=" + ",".join(self.queues))
        child.process = subprocess.Popen(command, pass_fds=(child.board.fileno, alive))
        child.started_at = now

    def _reap(self, child: Child, now: float) -> None:
        process = child.process
        if process is None or process.poll() is None:
            return
        child.process = None
        child.died_at = now
        worker, running, ended = child.board.read()
        if process.returncode == 0:
            child.pause = 0.0
            return
        # Whoever dies of a message is started again at once; whoever cannot even begin is not.
        child.pause = 0.0 if running or now - child.started_at > 5 else min(max(0.1, child.pause * 2), RESTART_MAX)
        log.warning("Worker process %d ended with %d while %d messages ran", process.pid, process.returncode, len(running))
        if worker:
            self.deaths.append(Death(worker, running, ended))
        self._looked_at = float("-inf")

    def _tell_deaths(self) -> None:
        while self.deaths:
            death = self.deaths[0]
            try:
                self.app.store.run(
                    lambda now: self.app.store.plans.recover(now, worker=death.worker, running=death.running, ended=death.ended),
                    one=True,
                )
                self.app.store.run(lambda _: plans.retire_worker(self.app.store.plans, death.worker))
            except StoreUnavailable as error:
                log.warning("A death could not be reported yet: %s", error)
                return
            self.deaths.pop(0)

    def _told_to_stop(self, number: int, _frame: FrameType | None) -> None:
        self.stops += 1
        for child in self.children:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM if self.stops == 1 else signal.SIGKILL)


def run_worker(app: Holdfast, target: str, *, processes: int = 1, queues: Sequence[str] | None = None) -> int:
    """Run a supervised worker in this process until it is told to stop."""
    return Supervisor(app, target, processes, queues).run()
