"""One worker process, started by the supervisor: `python -m holdfast.child module:app board capacity alive`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from .board import Board
from .errors import InvalidSettings
from .store import plans
from .worker import STUCK_EXIT

if TYPE_CHECKING:
    from .app import Holdfast
    from .worker import Worker

QUARANTINE_IDLE = 2.0  # seconds without a suspect after which the quarantine ends


def load_app(target: str) -> Holdfast:
    """The application that `module:name` names, looked for in the current folder first."""
    from .app import Holdfast

    module, _, name = target.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        app: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            raise InvalidSettings(f"There is no module {module!r} here: run this where `import {module}` works.") from error
        raise
    for part in (name or "app").split("."):
        app = getattr(app, part, None)
    if not isinstance(app, Holdfast):
        raise InvalidSettings(f"{target!r} is not a Holdfast application: write `module:name` of what `Holdfast(...)` made.")
    return app


async def work(app: Holdfast, board: Board, alive: int, queues: list[str] | None, quarantine: bool) -> int:
    worker = app.worker(board=board, embedded=False, queues=queues, quarantine=quarantine)
    loop = asyncio.get_running_loop()

    def told_to_stop() -> None:
        if worker._stop_at is not None:
            os._exit(130)
        worker.stop()
        announcing.append(loop.create_task(app.store.arun(lambda _: plans.announce_stop(app.store.plans, worker.number))))

    announcing: list[asyncio.Task[None]] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    threading.Thread(target=_watch_parent, args=(alive, loop, told_to_stop), daemon=True).start()
    if quarantine:
        announcing.append(loop.create_task(_end_when_empty(worker)))
    await worker.run()
    if worker.stuck:
        return STUCK_EXIT
    await app.store.aclose()
    return 0


def _watch_parent(alive: int, loop: asyncio.AbstractEventLoop, told_to_stop: Any) -> None:
    os.read(alive, 1)  # nobody writes: it returns when the supervisor is gone
    loop.call_soon_threadsafe(told_to_stop)


async def _end_when_empty(worker: Worker) -> None:
    empty_since = worker.clock.monotonic()
    while worker.clock.monotonic() - empty_since < QUARANTINE_IDLE:
        await asyncio.sleep(0.05)
        if not worker.pacing.idle:
            empty_since = worker.clock.monotonic()
    worker.stop()


def main() -> None:
    target, fileno, capacity, alive, *flags = sys.argv[1:]
    logging.basicConfig(level=os.environ.get("HOLDFAST_LOG_LEVEL", "WARNING"), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    queues = next((flag.removeprefix("--queues=").split(",") for flag in flags if flag.startswith("--queues=")), None)
    board = Board(int(fileno), int(capacity))
    code = asyncio.run(work(load_app(target), board, int(alive), queues, "--quarantine" in flags))
    if code:
        os._exit(code)  # a thread that cannot be stopped would keep the process


if __name__ == "__main__":
    main()
