"""`holdfast worker`: a parent process that keeps 1..N worker processes and a quarantine running.

It handles no messages itself. When a child dies, the parent reads from the board (shared memory) what it had begun. The
child that replaces it reports that to the store first of all: messages that were running are suspects, the others go
back. While suspects wait, one more child runs, the quarantine, which takes them one at a time and nothing else: if it
dies too, the message that killed it is known.

The parent keeps no connection and no thread, so that it can fork its children. A fork takes milliseconds, which matters
when messages kill one child after another. If the application itself has threads, children are spawned instead.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from ..errors import StoreUnavailable
from ..model.names import display_url
from ..telemetry.logs import Log, announce
from ..telemetry.sheet import Sheet
from ..worker.board import Board
from ..worker.exchanges import PAUSE_MAX, PAUSE_MIN
from .child import Task, WorkerDeath, report_deaths, run
from .exporter import listen, serve, token

if TYPE_CHECKING:
    from ..app import Holdfast

log = Log("holdfast.supervisor")

LOOK = 0.5  # seconds between checks of the children; a death wakes the parent at once
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
RESTART_MIN, RESTART_MAX = 0.1, 5.0
QUARANTINE_PAUSE = 1.0  # seconds: another worker may have taken the waiting suspects
KILL_AFTER = 1.5  # seconds beyond the grace after which children that have not stopped are killed
SAME_WORD = (
    0.5  # seconds: `timeout` and some process managers send a signal twice, to the process and to its group
)
REPORT_SECONDS = 1.0  # for the last reports
FORK_LOOKS = 50


class Process(Protocol):
    """A child process, forked or spawned."""

    pid: int

    def poll(self) -> int | None: ...
    def send_signal(self, number: int) -> None: ...


class Forked:
    """A child process that shares this one's memory as it was."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@dataclass
class Child:
    """A place for a worker process, the board it writes on, and the deaths that the next process there must report."""

    board: Board
    quarantine: bool
    sheet: Sheet | None = None  # what all processes in this place have counted
    process: Process | None = None
    started_at: float = 0.0
    died_at: float = 0.0
    pause: float = 0.0  # before it is started again
    deaths: list[WorkerDeath] = field(default_factory=list)
    asked: int = 0  # how often it was asked to stop


@dataclass
class Exporting:
    """The process that serves metrics. It keeps a database connection, which the supervisor must not."""

    app: Holdfast
    target: str
    listening: socket.socket
    sheets: list[Sheet]
    pipe: tuple[int, int]
    process: Process | None = None
    died_at: float = float("-inf")

    def look(self, now: float, *, stopping: bool) -> None:
        if self.process is not None and self.process.poll() is not None:
            log.warning("exporter.ended", "The process that serves metrics ended")
            self.process, self.died_at = None, now
        if self.process is None and not stopping and now >= self.died_at + RESTART_MAX:
            self.process = self._fork() if can_fork() else self._spawn()

    def _fork(self) -> Process:
        pid = fork()
        if pid == 0:
            os.close(self.pipe[1])
            serve(self.app, self.listening, self.sheets, self.pipe[0])
        return Forked(pid)

    def _spawn(self) -> Process:
        sheets = [each.fileno for each in self.sheets if each.fileno is not None]
        fds = [self.listening.fileno(), self.pipe[0], *sheets]
        command = [sys.executable, "-m", "holdfast.processes.exporter", self.target, *map(str, fds)]
        return subprocess.Popen(command, pass_fds=fds)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
        for sheet in self.sheets:
            sheet.close()
        self.listening.close()


@dataclass
class Supervisor:
    """Starts children, notices their deaths, and passes stop signals on to them."""

    app: Holdfast
    target: str
    processes: int = 1
    queues: Sequence[str] | None = None
    metrics: socket.socket | None = None  # where metrics are served
    children: list[Child] = field(default_factory=list)
    exporter: Exporting | None = None
    stops: int = 0
    deaths: int = 0  # of worker processes that had not been asked to stop
    _stop_at: float = float("inf")
    _pipe: tuple[int, int] = (-1, -1)  # closed when this process dies in any way: the children wait for that

    def run(self) -> int:
        """Work until asked to stop; returns the exit code."""
        woken = self._listen_to_signals()
        self._prepare()
        capacity = 8 * self.app.settings.claim + self.app.settings.concurrency
        self.children = [
            Child(
                Board.create(capacity),
                number == self.processes,
                None if self.metrics is None else Sheet.create(),
            )
            for number in range(self.processes + 1)
        ]
        self._pipe = os.pipe()
        if self.metrics is not None:
            sheets = [child.sheet for child in self.children if child.sheet is not None]
            self.exporter = Exporting(self.app, self.target, self.metrics, sheets, self._pipe)
        gc.freeze()
        try:
            while not self.stops or any(child.process is not None for child in self.children):
                self._look(self.app.clock.monotonic())
                if any(child.process is not None for child in self.children) or not self.stops:
                    select.select([woken], [], [], LOOK)
                    _empty(woken)
        finally:
            for each in self._pipe:
                os.close(each)
            if self.exporter is not None:
                self.exporter.stop()
            self._report_last_deaths()
            for child in self.children:
                child.board.close()
        return 0

    def _prepare(self) -> None:
        """Wait for the database: after a reboot the workers may start before it."""
        pause, logged = PAUSE_MIN, ""
        while not self.stops:
            try:
                self.app.prepare()
                break
            except StoreUnavailable as error:
                if str(error) != logged:  # each error is logged once
                    log.warning("store.absent", "The database is not there yet: %(error)s", error=error)
                logged = str(error)
                threading.Event().wait(pause)
                pause = min(pause * 2, PAUSE_MAX)
        self.app.load()  # here, so that no child needs to
        self.app.close()

    def _listen_to_signals(self) -> int:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it only wakes this process
        return read

    # -- the children

    def _look(self, now: float) -> None:
        if self.exporter is not None:
            self.exporter.look(now, stopping=bool(self.stops))
        for child in self.children:
            self._reap(child, now)
            if child.process is not None:
                self._pass_on(child)
                self._kill_if_stuck(child, now)
            elif not self.stops and now >= child.died_at + child.pause and self._is_needed(child):
                self._start(child, now)

    def _is_needed(self, child: Child) -> bool:
        return (
            not child.quarantine or bool(child.deaths) or any(each.board.suspects for each in self.children)
        )

    def _start(self, child: Child, now: float) -> None:
        child.board.wipe()
        board, alive = child.board, self._pipe[0]
        sheet = None if child.sheet is None else child.sheet.fileno
        task = Task(
            board.fileno, board.capacity, alive, child.quarantine, self.queues, tuple(child.deaths), sheet
        )
        child.process = self._fork(child, task) if can_fork() else self._spawn(task)
        child.started_at, child.asked = now, 0

    def _fork(self, child: Child, task: Task) -> Process:
        pid = fork()
        if pid == 0:
            os.close(self._pipe[1])
            run(self.app, task, child.board, child.sheet)
        return Forked(pid)

    def _spawn(self, task: Task) -> Process:
        command = [sys.executable, "-m", "holdfast.processes.child", self.target, task.to_json()]
        shared = (task.board, task.alive) if task.sheet is None else (task.board, task.alive, task.sheet)
        return subprocess.Popen(command, pass_fds=shared)

    def _reap(self, child: Child, now: float) -> None:
        process = child.process
        code = None if process is None else process.poll()
        if process is None or code is None:
            return
        child.process, child.died_at = None, now
        if child.board.has_reported_deaths:
            child.deaths.clear()
        worker, running, ended, frail = child.board.read()
        if code == 0 and not worker:
            child.pause = QUARANTINE_PAUSE if child.quarantine else 0.0
            return
        # A child that died while it ran a message is restarted at once; one that failed to start is not.
        quick = running or now - child.started_at > RESTART_MAX
        child.pause = 0.0 if quick else min(max(RESTART_MIN, child.pause * 2), RESTART_MAX)
        log.warning(
            "child.ended",
            "Worker process %(child)d ended with %(code)d while %(running)d messages ran",
            child=process.pid,
            code=code,
            running=len(running),
        )
        self.deaths += not self.stops
        if worker and self.stops:  # a child that was asked to stop leaves no suspects
            child.deaths.append(WorkerDeath(worker, [], running + ended))
        elif worker:
            # A message with one start left runs alone: the death of another message's worker must not use up that
            # start.
            child.deaths.append(
                WorkerDeath(worker, running + frail, [seq for seq in ended if seq not in set(frail)])
            )

    def _kill_if_stuck(self, child: Child, now: float) -> None:
        """Kill children whose loop hangs, since they cannot time anything out, and those that do not stop in time."""
        assert child.process is not None
        turned_at = child.board.turned_at
        timeouts = [each.limits(each.queue).timeout for each in self.app.handlers]
        patience = max(timeouts, default=0.0) + self.app.settings.lease
        if turned_at and now - turned_at > patience:
            log.error(
                "child.killed",
                "Worker process %(child)d is killed: its event loop has hung for %(seconds).0f s",
                child=child.process.pid,
                seconds=now - turned_at,
            )
            child.process.send_signal(signal.SIGKILL)
        elif now > self._stop_at + self.app.settings.grace + KILL_AFTER:
            log.error(
                "child.killed",
                "Worker process %(child)d is killed: it has not stopped within its grace period",
                child=child.process.pid,
            )
            child.process.send_signal(signal.SIGKILL)

    # -- the end

    def _asked_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        now = self.app.clock.monotonic()
        if self.stops and now - self._stop_at < SAME_WORD:
            return
        self.stops += 1
        self._stop_at = min(self._stop_at, now)

    def _pass_on(self, child: Child) -> None:
        """The first signal asks a child to stop, the second kills it."""
        assert child.process is not None
        if child.asked < self.stops:
            child.asked = self.stops
            child.process.send_signal(signal.SIGTERM if self.stops == 1 else signal.SIGKILL)

    def _report_last_deaths(self) -> None:
        """Report the last deaths from this process: no child is left to do it."""
        deaths = [death for child in self.children for death in child.deaths]
        if not deaths:
            return
        reporting = threading.Thread(
            target=lambda: asyncio.run(report_deaths(self.app, deaths, lambda: False)), daemon=True
        )
        reporting.start()
        reporting.join(REPORT_SECONDS)


def can_fork() -> bool:
    """Whether this process has only one thread. Forking with more is not safe; on macOS it never is."""
    for _ in range(FORK_LOOKS):  # a thread that was joined may take a moment to disappear
        try:
            if len(os.listdir("/proc/self/task")) == 1:
                return True
        except OSError:
            return False
        if threading.active_count() > 1:
            return False
        threading.Event().wait(0.001)
    return False


def fork() -> int:
    """0 in the child, whose signal handlers are reset."""
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal that comes before the child handles it ends the child, which holds nothing yet.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return pid


def run_worker(
    app: Holdfast,
    target: str,
    *,
    processes: int = 1,
    queues: Sequence[str] | None = None,
    metrics: str | None = None,
    metrics_open: bool = False,
) -> int:
    """Run a supervised worker in this process until it is asked to stop.

    `metrics`: an address to be scraped at; `metrics_open`: by anybody, also beyond loopback without a token.
    """
    listening = None if metrics is None else listen(metrics, token=token(), is_open=metrics_open)
    served = sorted(queues or (each.queue for each in app.handlers))
    begun = app.clock.monotonic()
    announce(
        "worker.began",
        "holdfast %(version)s: worker of %(application)s on %(database)s, queues %(queues)s, %(processes)s, "
        "%(metrics)s",
        version=metadata.version("holdfast"),
        application=target,
        database=display_url(app.url),
        queues=", ".join(served) or "none",
        processes="1 process" if processes == 1 else f"{processes} processes",
        metrics="no metrics" if listening is None else f"metrics at {_address(listening)}",
    )
    supervisor = Supervisor(app, target, processes, queues, listening)
    code = supervisor.run()
    announce(
        "worker.finished",
        "holdfast: worker of %(application)s ended after %(seconds)s: %(deaths)s of its processes died",
        application=target,
        seconds=f"{app.clock.monotonic() - begun:.0f} s",
        deaths=supervisor.deaths or "none",
    )
    return code


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _empty(pipe: int) -> None:
    try:
        while os.read(pipe, 1024):
            pass
    except BlockingIOError:
        pass
