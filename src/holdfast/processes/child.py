"""One worker process of a supervisor: forked from it, or started as `python -m holdfast.processes.child`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NoReturn

from ..errors import StoreUnavailable
from ..store.plans import engine, outages
from ..store.statement import Plan
from ..telemetry.logs import Log, configure
from ..telemetry.sheet import Sheet
from ..worker.board import Board
from ..worker.exchanges import PAUSE_MAX, PAUSE_MIN
from ..worker.loop import LAST_WORDS
from .loading import load_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..worker.loop import Worker

log = Log("holdfast.supervisor")

STUCK_EXIT = 75  # exit code: a thread cannot be stopped, so the supervisor must start another process
QUARANTINE_IDLE = 0.5  # seconds without a suspect after which the quarantine ends
ORPHAN_SECONDS = 2.0  # beyond the grace, for a process whose supervisor is gone


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """A worker that died, and the messages it had begun: `running` are the suspects."""

    worker: int
    running: list[int]
    ended: list[int]


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a child process. `alive` is a pipe that closes when the supervisor dies."""

    board: int
    capacity: int
    alive: int
    quarantine: bool
    queues: Sequence[str] | None
    deaths: Sequence[WorkerDeath]
    sheet: int | None = None  # where it counts, if metrics are served

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        fields = json.loads(text)
        return cls(**{**fields, "deaths": [WorkerDeath(**death) for death in fields["deaths"]]})


def run(app: Holdfast, task: Task, board: Board, sheet: Sheet | None) -> NoReturn:
    """Work as the supervisor asks, then exit. If the board is not wiped after that, the process has died."""
    try:
        asyncio.run(_work_and_leave(app, task, board, sheet))
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(1)


async def _work_and_leave(app: Holdfast, task: Task, board: Board, sheet: Sheet | None) -> None:
    code = await work(app, task, board, sheet)
    if code == 0:
        board.wipe()
    _leave(code)  # exit here: threads that do not return would keep the loop, and with it the process, alive


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


async def work(app: Holdfast, task: Task, board: Board, sheet: Sheet | None) -> int:
    loop = asyncio.get_running_loop()
    worker = app.worker(
        board=board, sheet=sheet, embedded=False, queues=task.queues, quarantine=task.quarantine
    )
    announced: list[asyncio.Task[None]] = []

    def asked_to_stop() -> None:
        if not announced:  # a second signal changes nothing: the supervisor kills the process
            worker.stop()
            announced.append(loop.create_task(worker.announce_stop()))

    loop.add_signal_handler(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the supervisor passes it on
    orphaned = threading.Thread(
        target=_watch_supervisor, args=(task.alive, loop, asked_to_stop, app.settings.grace), daemon=True
    )
    orphaned.start()
    await report_deaths(app, task.deaths, lambda: bool(announced))
    board.deaths_reported()
    if any(death.running for death in task.deaths):
        board.suspects_wait(True)
        os.kill(os.getppid(), signal.SIGCHLD)  # the supervisor checks at once
    ending = loop.create_task(_end_when_empty(worker)) if task.quarantine else None
    gc.freeze()  # what is loaded stays until the end: collections of garbage need not look at it each time
    await worker.run()
    if announced:
        await asyncio.wait(announced, timeout=LAST_WORDS)
    if ending is not None:
        ending.cancel()
    if app.tracing is not None:
        await asyncio.to_thread(app.tracing.flush)
    if worker.stuck:
        return STUCK_EXIT
    await app.store.aclose()
    return 0


async def report_deaths(app: Holdfast, deaths: Sequence[WorkerDeath], hurry: Callable[[], bool]) -> None:
    """Report what dead workers had begun, without waiting for their leases to expire."""
    pause = PAUSE_MIN
    waiting = list(deaths)
    while waiting and not hurry():
        try:
            await app.store.arun(_reported(waiting[0]))
            waiting.pop(0)
        except StoreUnavailable as error:
            log.warning("death.unreported", "A death could not be reported yet: %(error)s", error=error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)


def _reported(death: WorkerDeath) -> Plan[None]:
    yield from engine.recover(worker=death.worker, running=death.running, ended=death.ended)
    yield from outages.leave(death.worker, died=True)


def _watch_supervisor(
    alive: int, loop: asyncio.AbstractEventLoop, asked_to_stop: Callable[[], None], grace: float
) -> None:
    os.read(alive, 1)  # nothing is ever written: it returns when the supervisor is gone
    loop.call_soon_threadsafe(asked_to_stop)
    threading.Event().wait(grace + ORPHAN_SECONDS)
    os._exit(1)  # no other thread is left to end a process whose loop hangs


async def _end_when_empty(worker: Worker) -> None:
    empty_since = worker.clock.monotonic()
    while worker.clock.monotonic() - empty_since < QUARANTINE_IDLE:
        await asyncio.sleep(QUARANTINE_IDLE / 10)
        if not worker.pacing.idle or worker.gate.waits_for_slots:
            empty_since = worker.clock.monotonic()
    worker.stop()


def main() -> None:
    target, text = sys.argv[1:]
    task, app = Task.from_json(text), load_app(target)
    configure()  # after the application, which may have configured logging itself
    sheet = None if task.sheet is None else Sheet(task.sheet)
    run(app, task, Board(task.board, task.capacity), sheet)


if __name__ == "__main__":
    main()
