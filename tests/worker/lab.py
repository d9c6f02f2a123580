"""A database and workers in it: inside the test's own process, or as the processes that a user would run.

    app = lab.app()                                an application on the lab's database
    async with lab.working(app): ...               a worker inside the test
    worker = lab.start(processes=2); worker.kill() `holdfast worker` as a process, on tests/worker/trouble.py

What is stored is read past the protocol: `lab.rows("dead")`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.clock import MovableClock
from holdfast.store import SqliteStore, Store
from holdfast.worker.loop import Worker
from tests.store import state
from tests.store.state import Row

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds that anything may take on a machine that has other things to do

RUN = """
import json, logging, os, sys
level = json.loads(os.environ.get("LAB_LOG", '"INFO"'))
logging.basicConfig(level=level, format="%(process)d %(levelname)s %(message)s")
from holdfast.processes.loading import load_app
from holdfast.processes.supervisor import run_worker
sys.exit(run_worker(load_app(sys.argv[1]), sys.argv[1], processes=int(sys.argv[2])))
"""


@dataclass
class Process:
    """A process that the test started, with what it said."""

    popen: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.popen.wait(seconds)

    def children(self) -> list[int]:
        """Its worker processes that live."""
        return [pid for pid in children_of(self.pid) if state_of(pid) != "Z"]

    def kill_all(self) -> None:
        """As if the machine had lost its power: nobody is left to tell."""
        pids = [self.pid, *children_of(self.pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with_no_process(lambda pid=pid, number=number: os.kill(pid, number))
        self.popen.wait(PATIENCE)
        until(lambda: not any(state_of(pid) not in ("", "Z") for pid in pids))


@dataclass
class Lab:
    """One database, its workers and its files."""

    url: str
    folder: Path
    processes: list[Process] = field(default_factory=list)
    apps: list[Holdfast] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._own = Holdfast(self.url)
        self.apps.append(self._own)
        if self.sqlite:
            self._own.store.migrate()

    @property
    def sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @property
    def store(self) -> Store:
        """A store of the lab's own, for looking."""
        return self._own.store

    @property
    def operations(self) -> Any:
        return self._own.operations

    def app(self, **settings: Any) -> Holdfast:
        app = Holdfast(self.url, **settings)
        self.apps.append(app)
        return app

    def still(self, **settings: Any) -> tuple[Holdfast, MovableClock]:
        """An application whose clock stands until it is moved."""
        clock = MovableClock()
        return self.app(clock=clock, **settings), clock

    @asynccontextmanager
    async def working(self, app: Holdfast, **options: Any) -> AsyncIterator[Worker]:
        async with app.running(**options) as running:
            yield running.worker

    def close(self) -> None:
        for app in self.apps:
            app.close()

    # -- processes

    def start(self, *, processes: int = 1, target: str = "tests.worker.trouble:app", **env: Any) -> Process:
        """`holdfast worker` on an application, `LAB_...` in its environment."""
        output = self.folder / f"worker-{len(self.processes)}.log"
        environment = {
            **os.environ,
            "LAB_URL": self.url,
            "LAB_FOLDER": str(self.folder),
            # Behind ours what was given: a planted bug is in the workers too.
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        environment |= {f"LAB_{name.upper()}": json.dumps(value) for name, value in env.items()}
        with open(output, "wb") as file:
            popen = subprocess.Popen(
                [sys.executable, "-u", "-c", RUN, target, str(processes)],
                cwd=self.folder if not target.startswith("tests.") else ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        process = Process(popen, output)
        self.processes.append(process)
        return process

    def end_processes(self) -> None:
        for process in self.processes:
            if process.popen.poll() is None:
                with_no_process(lambda pid=process.pid: os.kill(pid, signal.SIGCONT))
                process.kill_all()

    def publish(
        self, *bodies: dict[str, Any], type: str = "trouble", queue: str = "trouble", **options: Any
    ) -> None:
        """Messages for the handlers of tests/worker/trouble.py."""
        for start in range(0, len(bodies), 1000):
            self._own.publish_many(
                self._own.message(
                    type, body, queue=queue, **{k: v(body) if callable(v) else v for k, v in options.items()}
                )
                for body in bodies[start : start + 1000]
            )

    def starts(self) -> list[tuple[Any, int, int]]:
        """(n of the body, attempt, process) of every start of a handler, in order."""
        file = self.folder / "starts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(json.loads(line)) for line in lines]  # type: ignore[misc]

    def started(self) -> Counter[Any]:
        return Counter(n for n, *_ in self.starts())

    def signal(self, name: str) -> None:
        """What handlers of tests/worker/trouble.py wait for."""
        (self.folder / name).touch()

    def reached(self, name: str) -> None:
        """Wait for what a handler tells."""
        until(lambda: (self.folder / name).exists(), self.said)

    def said(self) -> str:
        return "\n".join(process.said[-3000:] for process in self.processes)

    # -- what is stored

    def rows(self, table: str) -> list[Row]:
        return state.read(self.store, table)

    def query(self, text: str, **params: object) -> list[tuple[Any, ...]]:
        return state.query(self.store, text, **params)

    def is_empty(self) -> bool:
        """Nothing is pending or leased."""
        return self.query("select count(*) from {message}")[0][0] == 0

    def until_empty(self, seconds: float = PATIENCE) -> None:
        until(self.is_empty, self.describe, seconds)

    def describe(self) -> str:
        return f"{self.rows('message')[:5]}\n{self.said()}"

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection of the user's own."""
        if self.sqlite:
            assert isinstance(self.store, SqliteStore)
            with closing(sqlite3.connect(self.store.path, timeout=PATIENCE)) as db:
                yield db
        else:
            with closing(psycopg.connect(self.url)) as db:
                yield db

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        """SQL of the user's own."""
        with self.connection() as db:
            cursor = db.execute(text)
            rows = cursor.fetchall() if cursor.description else []
            db.commit()
            return rows

    def make_effects(self) -> None:
        """A table of the user's, in which a handler's effects are counted."""
        self.execute("create table effect (n integer not null, worker text)")

    def effects(self) -> Counter[int]:
        return Counter(n for (n,) in self.execute("select n from effect"))


# --- Waiting ----------------------------------------------------------------------------------------------------------


def until(done: Callable[[], Any], why: Callable[[], str] = str, seconds: float = PATIENCE) -> None:
    """Wait for what nobody announces."""
    for pause in pauses(why, seconds):
        if done():
            return
        time.sleep(pause)


async def auntil(done: Callable[[], Any], why: Callable[[], str] = str, seconds: float = PATIENCE) -> None:
    """The same while the test's own loop turns."""
    for pause in pauses(why, seconds):
        if await asyncio.to_thread(done):
            return
        await asyncio.sleep(pause)


def pauses(why: Callable[[], str], seconds: float) -> Iterator[float]:
    """Growing ones: a look may be a query, and what takes long is not missed by a twentieth of a second."""
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < seconds:
        yield min(0.05, max(0.002, waited / 10))
    raise AssertionError(f"waited for {seconds} s\n{why()}")


async def settled(lab: Lab) -> None:
    """Wait until nothing is pending any more."""
    await auntil(lab.is_empty, lab.describe)


# --- Processes --------------------------------------------------------------------------------------------------------


def with_no_process(do: Callable[[], None]) -> None:
    try:
        do()
    except ProcessLookupError:
        pass


def state_of(pid: int) -> str:
    """R, S, T, Z ... or nothing when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def children_of(pid: int) -> list[int]:
    found = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in each.read_text().split()]
        except OSError:
            pass
    return found
