"""One contestant on the course: a fresh database, a backlog, workers that begin together, and the check afterwards.

Every contestant is a process of its own, in its own environment, that is given an address and a tally. What it
handled is read from the tally, never from what it says; CPU and memory from the kernel.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from .adapters.contest import Tally
from .machine import cpu_seconds, family, peak_megabytes
from .servers import Servers

ROOT = Path(__file__).resolve().parent.parent
STALL_SECONDS = 30.0
CHUNK = 1000


class Failed(Exception):
    """A measurement that does not count, and why."""


@dataclass(frozen=True)
class Contestant:
    """Who runs: the adapter, the Python it runs in, and where its messages lie."""

    name: str
    adapter: str
    database: str  # postgres, sqlite, rabbitmq
    python: Path = Path(sys.executable)
    share: float = 1.0  # of the messages of a line: slow ones get fewer
    chunk: int = CHUNK
    missing: str = ""  # why it cannot be measured here
    environment: dict[str, str] = field(default_factory=dict)
    tree: Path = ROOT  # whose bench/adapters it runs: ours, or that of another revision

    def but(self, **environment: str) -> Contestant:
        """The same with another environment, such as another kind of handler."""
        return replace(self, environment={**self.environment, **environment})


@dataclass
class Drained:
    """What a drain showed. Rates in messages a second, CPU in microseconds a message."""

    rate: float
    client_us: float = 0.0
    server_us: float = 0.0
    megabytes: float = 0.0
    seconds: float = 0.0

    def facts(self) -> dict[str, float]:
        return {"client_us": self.client_us, "server_us": self.server_us, "megabytes": self.megabytes}


class Stand:
    """A fresh place for one contestant's messages, with a tally for n of them."""

    def __init__(self, servers: Servers, contestant: Contestant, n: int, template: str | None = None) -> None:
        self.servers, self.contestant, self.n = servers, contestant, n
        self.folder = Path(tempfile.mkdtemp(prefix="stand-", dir=servers.folder))
        path = self.folder / "tally"
        path.touch()
        self.tally = Tally(path, n)
        self.url = servers.place(contestant.database, self.folder, template)
        self.errors = open(self.folder / "errors", "a")  # noqa: SIM115 - closed with the stand
        self.gates = self.sent = 0
        self.processes: list[subprocess.Popen[str]] = []

    def environment(self) -> dict[str, str]:
        """Python's hash seed and warnings as everybody's; nice as ours."""
        return {
            **os.environ,
            "BENCH_URL": self.url,
            "BENCH_TALLY": str(self.folder / "tally"),
            "BENCH_COUNT": str(self.n),
            "BENCH_GATE": str(self.gate),
            "BENCH_QUEUE": self.folder.name,
            "PYTHONWARNINGS": "ignore",
            **self.contestant.environment,
        }

    @property
    def gate(self) -> Path:
        folder = self.folder / f"gate{self.gates}"
        folder.mkdir(exist_ok=True)
        return folder

    def start(self, verb: str, **params: Any) -> subprocess.Popen[str]:
        """Start a verb of the adapter. What may be asked of an adapter: see `contest.main`."""
        line = [
            str(self.contestant.python),
            "-m",
            f"bench.adapters.{self.contestant.adapter}",
            verb,
            json.dumps(params),
        ]
        process = subprocess.Popen(
            line, cwd=self.contestant.tree, env=self.environment(), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def ask(self, verb: str, seconds: float = 300.0, **params: Any) -> dict[str, Any]:
        """Run a verb to its end; its one line of JSON."""
        process = self.start(verb, **params)
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{verb} took more than {seconds:.0f} s") from None
        if process.returncode:
            raise Failed(f"{verb} ended with {process.returncode}: {self.complaint()}")
        return dict(json.loads(said.strip().splitlines()[-1]))

    def complaint(self) -> str:
        lines = (self.folder / "errors").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def publish(self, n: int, first: int = 0, **how: Any) -> dict[str, Any]:
        self.sent = first + n
        return self.ask("publish", **self.publishing(n, first, **how))

    def publishing(
        self, n: int, first: int, *, chunk: int = 0, pause: float = 0.0, streams: int = 0, keep: int = 0
    ) -> dict[str, Any]:
        chunk = chunk or self.contestant.chunk
        return {"n": n, "first": first, "chunk": chunk, "pause": pause, "streams": streams, "keep": keep}

    def checkpoint(self) -> None:
        """So that full-page images weigh alike on every run."""
        if self.contestant.database == "postgres":
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("checkpoint")

    # -- workers

    def work(self, processes: int = 1) -> list[subprocess.Popen[str]]:
        """Start workers and hold them at the gate until all are ready."""
        self.gates += 1
        # Our supervisor starts its processes itself; everybody else's are started by us.
        supervised = self.contestant.adapter in ("holdfast", "flows_holdfast")
        workers = [
            self.start("work", processes=processes if supervised else 1)
            for _ in range(1 if supervised else processes)
        ]
        self.until(lambda: len(list(self.gate.glob("ready-*"))) >= len(workers), 30.0, workers, "start")
        return workers

    def open_gate(self) -> None:
        (self.gate / "open").touch()

    def until(
        self, done: Callable[[], bool], seconds: float, workers: list[subprocess.Popen[str]], what: str
    ) -> None:
        end = time.monotonic() + seconds
        while not done():
            if any(worker.poll() not in (None, 0) for worker in workers):
                raise Failed(f"a worker ended while it should {what}: {self.complaint()}")
            if time.monotonic() > end:
                raise Failed(f"did not {what} within {seconds:.0f} s: {self.complaint()}")
            time.sleep(0.002)

    def handled(self, first: int = 0, count: int | None = None) -> int:
        marks = bytes(self.tally.marks[first : self.n if count is None else first + count])
        return len(marks) - marks.count(0)

    def wait_for(
        self, count: int, workers: list[subprocess.Popen[str]], first: int = 0, of: int | None = None
    ) -> None:
        """Until so many are handled; a contestant that makes no progress for a while has failed."""
        best, at = -1, time.monotonic()
        while (now := self.handled(first, of)) < count:
            if now > best:
                best, at = now, time.monotonic()
            elif time.monotonic() - at > STALL_SECONDS:
                raise Failed(f"stands still at {now} of {count}: {self.complaint()}")
            if all(worker.poll() is not None for worker in workers):
                raise Failed(f"all workers have ended at {now} of {count}: {self.complaint()}")
            time.sleep(0.005)

    def stop(self, workers: list[subprocess.Popen[str]], seconds: float = 10.0) -> None:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.send_signal(signal.SIGTERM)
        end = time.monotonic() + seconds
        for worker in workers:
            try:
                worker.communicate(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(worker)

    def kill(self, worker: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.communicate()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)
        self.errors.close()
        self.servers.leave(self.contestant.database, self.url, self.folder)


@contextmanager
def stand(servers: Servers, contestant: Contestant, n: int, template: str | None = None) -> Iterator[Stand]:
    if contestant.missing:
        raise Failed(f"not measured: {contestant.missing}")
    made = Stand(servers, contestant, n, template)
    try:
        if template is None:
            made.ask("prepare")
        yield made
    finally:
        made.close()


def drain(
    servers: Servers, contestant: Contestant, n: int, *, processes: int = 1, streams: int = 0
) -> Drained:
    """Fill a backlog, let the workers drain it, check that each message was handled once."""
    with stand(servers, contestant, n) as s:
        s.publish(n, streams=streams)
        s.checkpoint()
        return run_down(s, n, processes=processes)


def run_down(s: Stand, n: int, *, processes: int = 1, enough: int | None = None) -> Drained:
    """Drain the backlog that is there; with `enough`, stop when so many of it are handled."""
    workers = s.work(processes)
    s.open_gate()
    shown = watch(s, workers, enough or n)
    s.stop(workers)
    if enough is None and (faults := s.tally.faults()):
        raise Failed(faults)
    return shown


def watch(s: Stand, workers: list[subprocess.Popen[str]], count: int, already: int = 0) -> Drained:
    """Until `count` more messages are handled: the rate from the first start to the last, CPU and memory."""
    s.wait_for(already + 1, workers)
    cpu, server, before = cpu_of(workers), s.servers.cpu(s.contestant.database), s.handled()
    s.wait_for(already + count, workers)
    handled = max(1, s.handled() - before)
    cpu, server = cpu_of(workers) - cpu, s.servers.cpu(s.contestant.database) - server
    megabytes = max(peak_megabytes(each) for worker in workers for each in family(worker.pid))
    if any(mark > 1 for mark in bytes(s.tally.marks)):
        raise Failed("messages were handled more than once")
    began = sorted(at for at in s.tally.started if at)[already : already + count]
    seconds = began[-1] - began[0]
    return Drained(
        (len(began) - 1) / seconds, cpu / handled * 1e6, server / handled * 1e6, megabytes, seconds
    )


def at_backlog(s: Stand, size: int, count: int) -> Drained:
    """Handle `count` messages while a publisher keeps the backlog at `size`; every size has the same company."""
    workers = s.work()
    already = s.handled()  # in the turns before
    more = size + already + count - s.sent
    publisher = s.start("publish", **s.publishing(more, s.sent, chunk=500, keep=size))
    s.sent += more
    time.sleep(1.0)  # it is there, and waits for the first to be handled
    s.open_gate()
    shown = watch(s, workers, count, already)
    s.stop(workers)
    publisher.communicate(timeout=60)
    return shown


def cpu_of(workers: list[subprocess.Popen[str]]) -> float:
    return sum(cpu_seconds(each) for worker in workers for each in family(worker.pid))


def latency(servers: Servers, contestant: Contestant, n: int, rate: float = 50.0) -> dict[str, float]:
    """Publish at a low rate beside a worker with nothing else to do: from commit to the handler's start."""
    warm = 20
    with stand(servers, contestant, warm + n) as s:
        workers = s.work()
        s.open_gate()
        s.publish(warm, chunk=1, pause=0.05)
        s.wait_for(warm, workers)
        s.publish(n, first=warm, chunk=1, pause=1 / rate)
        s.wait_for(warm + n, workers)
        s.stop(workers)
        if faults := s.tally.faults():
            raise Failed(faults)
        calls = sorted(
            (b - a) * 1000 for a, b in zip(s.tally.called[warm:], s.tally.started[warm:], strict=True)
        )
        waits = sorted(
            (b - a) * 1000 for a, b in zip(s.tally.published[warm:], s.tally.started[warm:], strict=True)
        )
        cuts = statistics.quantiles(waits, n=100, method="inclusive")
        return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "from_call_p50": statistics.median(calls)}


def idle(
    servers: Servers, contestants: list[Contestant], settle: float = 10.5, seconds: float = 10.0
) -> dict[str, float]:
    """Percent of a core that each worker burns when nothing has come for a while. All wait at the same time."""
    stands, running = [], []
    try:
        for contestant in contestants:
            s = Stand(servers, contestant, 10)
            stands.append(s)
            s.ask("prepare")
            workers = s.work()
            s.open_gate()
            running.append(workers)
            s.publish(10, chunk=1)
            s.wait_for(10, workers)
        time.sleep(settle)
        before = [cpu_of(workers) for workers in running]
        time.sleep(seconds)
        return {
            s.contestant.name + "/" + s.contestant.database: (cpu_of(workers) - cpu) / seconds * 100
            for s, workers, cpu in zip(stands, running, before, strict=True)
        }
    finally:
        for s in stands:
            s.close()


WAVE, WAVES, COMPARED = 20_000, 10, 2


def decay(servers: Servers, contestant: Contestant, streams: int = 0) -> tuple[float, list[float]]:
    """What is left of the rate after ten waves of 20,000 while a snapshot is held, and the rates of the waves.

    The last two waves are compared with the first two of a fresh stand, in turns with them: the machine changes its
    pace within a minute by as much as the bar allows.
    """
    with ExitStack() as stands:
        old = stands.enter_context(held_waves(servers, contestant, WAVES, streams))
        rates = [next(old) for _ in range(WAVES - COMPARED)]
        new = stands.enter_context(held_waves(servers, contestant, COMPARED, streams))
        first, last = [], []
        for _ in range(COMPARED):
            first.append(next(new))
            last.append(next(old))
        return sum(last) / sum(first), [*rates, *last]


@contextmanager
def held_waves(
    servers: Servers, contestant: Contestant, count: int, streams: int
) -> Iterator[Iterator[float]]:
    """So many waves that one worker drains: the rate of each, when it is asked for.

    A REPEATABLE READ transaction is open all the time, so that nothing dead can be removed. Between waves, and while
    one is published, the worker is stopped (SIGSTOP).
    """
    warm = 2000
    with stand(servers, contestant, warm + count * WAVE) as s:
        workers = s.work()
        s.open_gate()
        s.publish(warm, streams=streams)
        s.wait_for(warm, workers)

        def wave(first: int) -> float:
            s.publish(WAVE, first=first, streams=streams)
            freeze(workers, signal.SIGCONT)
            s.wait_for(WAVE, workers, first, WAVE)
            time.sleep(0.2)  # the last batch is settled
            freeze(workers, signal.SIGSTOP)
            began = s.tally.started[first : first + WAVE]
            return (WAVE - 1) / (max(began) - min(began))

        with psycopg.connect(s.url) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("select count(*) from pg_class")
            time.sleep(0.2)
            freeze(workers, signal.SIGSTOP)
            yield (wave(warm + n * WAVE) for n in range(count))
            freeze(workers, signal.SIGCONT)
        s.stop(workers)
        if faults := s.tally.faults():
            raise Failed(faults)


def freeze(workers: list[subprocess.Popen[str]], how: signal.Signals) -> None:
    for worker in workers:
        for process in family(worker.pid):
            os.kill(process, how)
