"""The stage of one demo: a folder, the shop's producers, and the worker processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .. import Holdfast
from ..clock import SystemClock
from . import proof, story, till
from .picture import Counts, Picture, read_counts

STEP = 0.1  # seconds between two looks
START_LIMIT = 20.0  # seconds for the worker processes to start
KILL_STEP, KILL_LIMIT = 0.01, 2.0


@dataclass
class Stage:
    """One run of the demo, and the two lists that no database can hold (see proof)."""

    story: story.Story
    folder: Path
    seconds: float
    processes: int
    target: str
    rolled_back: list[str] = field(default_factory=list)
    killed: int = 0
    crashes: int = 0
    cursed: str = ""
    invalid: str = ""
    troubles: list[str] = field(default_factory=list)

    @property
    def database(self) -> str:
        return str(self.folder / "shop.db")

    def play(self, picture: Picture, limit: float) -> str | None:
        """Run until the last message is handled; returns the problem, if the demo could not be run."""
        till.open_shop(self.database)
        app = Holdfast(f"sqlite:///{self.database}")
        app.prepare()
        with closing(app), self.started() as workers, picture:
            if not self.workers_came(workers):
                return "the worker processes did not start"
            begun = SystemClock().monotonic()
            tills = [
                threading.Thread(target=self.trade, args=(number, app, begun), daemon=True)
                for number in range(story.TILLS)
            ]
            for each in tills:
                each.start()
            return self.watch(workers, tills, picture, begun, limit)

    def workers_came(self, workers: subprocess.Popen[str]) -> bool:
        """Wait until the handlers are subscribed and every process has announced itself."""
        pause = threading.Event()
        for _ in range(int(START_LIMIT / STEP)):
            if till.workers_seen(self.database) >= self.processes:
                return True
            if workers.poll() is not None:
                return False
            pause.wait(STEP)
        return False

    def trade(self, number: int, app: Holdfast, begun: float) -> None:
        """One producer: its transactions, each at its time."""
        pause = threading.Event()
        try:
            for change in self.story.of_till(number):
                pause.wait(max(0.0, begun + change.at * self.seconds - SystemClock().monotonic()))
                ids = till.carry_out(self.database, app, change)
                if change.rolled_back:
                    self.rolled_back += map(str, ids)
                for each, published in zip(ids, change.publishes, strict=True):
                    self.cursed = str(each) if published.cursed else self.cursed
                    self.invalid = str(each) if published.invalid else self.invalid
        except Exception as error:  # reported by the main thread
            self.troubles.append(f"a producer failed: {type(error).__name__}: {error}")

    def watch(
        self,
        workers: subprocess.Popen[str],
        tills: list[threading.Thread],
        picture: Picture,
        begun: float,
        limit: float,
    ) -> str | None:
        pause = threading.Event()
        kills = [at * self.seconds for at in story.KILLS]
        while True:
            now = SystemClock().monotonic() - begun
            if self.troubles:
                return self.troubles[0]
            if workers.poll() is not None:
                return f"the worker's parent process ended with {workers.returncode}"
            if kills and now >= kills[0]:
                kills.pop(0)
                picture.say(self.kill())
            self.look_for_crashes(picture)
            counts = read_counts(self.database, self.killed + self.crashes)
            picture.update(counts)
            if not kills and not any(each.is_alive() for each in tills) and self.finished(counts):
                return None
            if now > self.seconds + limit:
                return None  # the proof will show what is missing
            pause.wait(STEP)

    def look_for_crashes(self, picture: Picture) -> None:
        """Each start of the cursed message kills a worker process."""
        starts = proof.starts_of(self.database)[self.cursed]
        while self.crashes < starts:
            self.crashes += 1
            picture.say(f"message {self.cursed} killed its worker process: start {self.crashes}")

    def finished(self, counts: Counts) -> bool:
        return counts.committed == counts.done + counts.dead

    def kill(self) -> str:
        """kill -9 the worker process that holds the most messages; wait a little if none holds any."""
        pause = threading.Event()
        for _ in range(int(KILL_LIMIT / KILL_STEP)):
            held, pid = till.busiest_worker(self.database)
            try:
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
                    messages = "1 message" if held == 1 else f"{held} messages"
                    return f"kill -9 {pid}: a worker process that held {messages}"
            except ProcessLookupError:
                pass  # the cursed message killed it first
            pause.wait(KILL_STEP)
        return "no worker process held any message"

    def started(self) -> AbstractContextManager[subprocess.Popen[str]]:
        return workers(self.folder, self.target, self.processes, {story.DATABASE: self.database})

    def evidence(self) -> proof.Evidence:
        return proof.gather(
            self.database,
            self.story,
            rolled_back=self.rolled_back,
            cursed=self.cursed,
            invalid=self.invalid,
            killed=self.killed,
        )


@contextmanager
def workers(
    folder: Path, target: str, processes: int, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """`holdfast worker`, in another process. It ends with the block, and also when this process dies."""
    command = [sys.executable, "-m", "holdfast.demo.workers", target, str(processes)]
    with (
        (folder / "workers.log").open("a") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we stop them
        ) as process,
    ):
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
