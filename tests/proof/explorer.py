"""Every order in which the steps of two or three storage operations can happen, on real PostgreSQL connections.

An operation is a plan that also says BEGIN and COMMIT. Its steps lie between the points where it can be held: before
each statement, and inside the engine's functions at each `-- step:` (instrument.py), the deferred trigger of COMMIT
included. A schedule is the list of who goes next. All schedules are found by running one, looking where another
session could have gone on instead, and beginning anew from there: what is waiting for a lock cannot go on, so no
schedule is tried in vain and none twice.

`preemptions` bounds how often a session that could go on is left for another one; None is no bound. Most bugs need one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Any, Literal

import psycopg

from holdfast.errors import HoldfastError
from holdfast.store.postgres import execute
from holdfast.store.statement import Rows, Statement
from tests.proof.instrument import NOTICE, PAUSES

Body = Generator[Statement, Rows, Any]
State = Literal["ready", "running", "paused", "blocked", "finished"]

QUIET = 0.0004  # seconds without news after which the server is asked who waits for whom
STUCK = 20.0
RETRIES = 4


@dataclass(frozen=True)
class Operation:
    """Something that a process does to the store.

    `conflicts`: texts of serialization failures (40001) that are documented for it; it is then begun anew and must
    succeed. `passed`: points at which nothing has happened since the one before, so that holding it there is idle.
    """

    name: str
    body: Callable[[Any], Body]
    conflicts: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


class Quiet(Statement):
    """A statement that nobody can see, such as BEGIN: who sends it goes on at once with the next."""


class Restart(Exception):
    """The operation must be begun anew, in a new transaction (an operator's order that was overtaken)."""


@dataclass
class Session:
    """One connection with the operation that it performs; a thread of its own waits for the answers."""

    number: int
    connection: psycopg.Connection[Any]
    events: SimpleQueue[tuple[int, str, Any]]
    pid: int = 0
    state: State = "finished"
    pauses: int = 0
    operation: Operation | None = None
    body: Body | None = None
    pending: Statement | None = None
    result: Any = None
    retries: int = 0
    faults: list[str] = field(default_factory=list)
    inbox: SimpleQueue[Statement | None] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.pid = self.connection.info.backend_pid
        self.connection.add_notice_handler(self._noticed)
        self.connection.execute(f"set proof.session = '{self.number}'".encode())
        threading.Thread(target=self._work, daemon=True).start()

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if found := NOTICE.fullmatch(diagnostic.message_primary or ""):
            self.events.put((self.number, "paused", found[1]))

    def _work(self) -> None:
        while (statement := self.inbox.get()) is not None:
            try:
                self.events.put((self.number, "rows", execute(self.connection, statement)))
            except Exception as error:  # whatever it is, the explorer judges it
                self.events.put((self.number, "error", error))


@dataclass(frozen=True)
class Choice:
    """Where a schedule could have gone another way."""

    enabled: tuple[int, ...]
    chosen: int


@dataclass
class Run:
    """What one schedule did."""

    choices: list[Choice] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    conflicts: int = 0

    @property
    def schedule(self) -> list[int]:
        return [choice.chosen for choice in self.choices]


class Explorer:
    """Connections to one instrumented database, and the locks that hold its sessions."""

    def __init__(self, dsn: str, sessions: int = 3) -> None:
        self.events: SimpleQueue[tuple[int, str, Any]] = SimpleQueue()
        self.control = psycopg.connect(dsn, autocommit=True)
        settings = "-c deadlock_timeout=15ms -c timezone=UTC -c jit=off"
        self.sessions = [
            Session(number, psycopg.connect(dsn, autocommit=True, options=settings), self.events)
            for number in range(1, sessions + 1)
        ]

    def close(self) -> None:
        self.control.close()
        for session in self.sessions:
            session.inbox.put(None)
            session.connection.close()

    # -- all schedules

    def explore(
        self,
        operations: Sequence[Operation],
        world: Any,
        preemptions: int | None = None,
        limit: int = 100_000,
    ) -> Iterator[Run]:
        """Run every schedule, each from the world's beginning; the caller checks what it left."""
        todo: list[list[int]] = [[]]
        count = 0
        while todo and count < limit:
            prefix = todo.pop()
            world.restore()
            run = self.run(operations, world, prefix)
            count += 1
            for at in range(len(prefix), len(run.choices)):
                choice = run.choices[at]
                for other in choice.enabled:
                    if other != choice.chosen:
                        longer = [*run.schedule[:at], other]
                        if preemptions is None or preempted(run.choices, longer) <= preemptions:
                            todo.append(longer)
            yield run

    def run(self, operations: Sequence[Operation], world: Any, prefix: Sequence[int] = ()) -> Run:
        """One schedule: as `prefix` says, then whoever went last goes on as long as it can."""
        run = Run()
        active = self.sessions[: len(operations)]
        locks = ", ".join(f"pg_advisory_lock({s.number}, n)" for s in active)
        self.control.execute(f"select {locks} from generate_series(1, {PAUSES}) n".encode())
        try:
            for session, operation in zip(active, operations, strict=True):
                self._begin(session, operation, world)
            last = active[0].number
            while any(s.state != "finished" for s in active):
                enabled = tuple(s.number for s in active if s.state in ("ready", "paused"))
                if not enabled:
                    self._settle(active, run)  # all of them wait: the server finds the circle
                    continue
                at = len(run.choices)
                chosen = prefix[at] if at < len(prefix) else (last if last in enabled else enabled[0])
                assert chosen in enabled, f"schedule {prefix} cannot be repeated at {at}: {run.trace}"
                run.choices.append(Choice(enabled, chosen))
                self._step(active[chosen - 1], run)
                self._settle(active, run)
                last = chosen
        finally:
            self._clean_up(active)
        run.results = [s.result for s in active]
        run.faults += [f"{s.operation}: {fault}" for s in active for fault in s.faults]
        run.conflicts = sum(s.retries for s in active)
        return run

    # -- one session

    def _begin(self, session: Session, operation: Operation, world: Any) -> None:
        session.operation, session.retries, session.pauses, session.faults = operation, 0, 0, []
        session.connection.execute(f"set proof.passed = '{','.join(operation.passed)}'".encode())
        self._restart(session, world)
        session.world = world  # type: ignore[attr-defined]

    def _restart(self, session: Session, world: Any) -> None:
        assert session.operation is not None
        session.result = None
        session.body = session.operation.body(world)
        self._advance(session, None)

    def _advance(self, session: Session, rows: Rows | None) -> None:
        """Give the operation its rows; it asks for the next statement, or ends."""
        assert session.body is not None
        try:
            session.pending = next(session.body) if rows is None else session.body.send(rows)
            session.state = "ready"
        except StopIteration as end:
            self._finish(session, end.value)
        except Restart as overtaken:
            if session.retries < RETRIES:
                self._again(session, "begun anew")
            else:  # an operator is told to try again later
                self._finish(session, overtaken)
        except HoldfastError as refusal:
            self._finish(session, refusal)
        except Exception as error:  # a mistake in the operation or in the engine's Python
            session.faults.append(repr(error))
            self._finish(session, error)

    def _finish(self, session: Session, result: Any) -> None:
        session.result, session.state = result, "finished"
        if session.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            session.connection.execute("rollback")

    def _again(self, session: Session, why: str) -> None:
        session.retries += 1
        if session.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            session.connection.execute("rollback")
        if session.retries > RETRIES:
            session.faults.append(f"does not succeed after {RETRIES} retries ({why})")
            self._finish(session, None)
            return
        self._restart(session, session.world)  # type: ignore[attr-defined]

    def _step(self, session: Session, run: Run) -> None:
        """Let a session go on to its next stop."""
        if session.state == "paused":
            run.trace.append(f"{session.number} goes on")
            session.state = "running"
            self.control.execute(f"select pg_advisory_unlock({session.number}, {session.pauses})".encode())
            return
        assert session.pending is not None
        run.trace.append(f"{session.number} sends {shortened(session.pending.sql)}")
        session.state = "running"
        session.inbox.put(session.pending)

    def _settle(self, active: Sequence[Session], run: Run) -> None:
        """Until every session stands: held, ready for its next statement, at its end, or waiting for another."""
        unsure = {s.number for s in active if s.state in ("running", "blocked")}
        give_up = time.monotonic() + STUCK
        while unsure:
            try:
                number, kind, value = self.events.get(timeout=QUIET)
            except Empty:
                if time.monotonic() > give_up:
                    raise AssertionError(f"stuck: {run.trace}") from None
                self._look(active, unsure)
                continue
            session = active[number - 1]
            self._heard(session, kind, value, run)
            # Its next stop may have let others go on.
            unsure = {s.number for s in active if s.state in ("running", "blocked")}

    def _heard(self, session: Session, kind: str, value: Any, run: Run) -> None:
        if kind == "paused":
            session.state = "paused"
            session.pauses += 1
            run.trace.append(f"{session.number} is at {value}")
        elif kind == "rows":
            quiet = isinstance(session.pending, Quiet)
            self._advance(session, value)
            if quiet and session.state == "ready":
                self._step(session, run)
        else:
            self._failed(session, value, run)

    def _failed(self, session: Session, error: Exception, run: Run) -> None:
        state = getattr(error, "sqlstate", None)
        text = str(error).splitlines()[0] if str(error) else repr(error)
        run.trace.append(f"{session.number} fails: {state} {text}")
        assert session.operation is not None
        if state == "40001" and any(known in text for known in session.operation.conflicts):
            self._again(session, text)
            return
        session.faults.append(f"{state} {text}")
        self._finish(session, error)

    def _look(self, active: Sequence[Session], unsure: set[int]) -> None:
        """Ask who waits for whom. Those that wait for another session stand as well."""
        waiting = [s for s in active if s.number in unsure]
        pids = {s.pid: s for s in active}
        asked = ", ".join(f"pg_blocking_pids({s.pid})" for s in waiting)
        (blockers,) = self.control.execute(f"select {asked}".encode()).fetchall()
        blocked = {}
        for session, by in zip(waiting, blockers, strict=True):
            if any(pid in pids for pid in by):
                blocked[session.number] = {pids[pid].number for pid in by if pid in pids}
                session.state = "blocked"
        standing = {s.number for s in active if s.state in ("ready", "paused")}
        # A circle of waiting sessions is not a stop: the server will break it.
        if all(reaches(number, blocked, standing) for number in unsure):
            unsure.clear()

    def _clean_up(self, active: Sequence[Session]) -> None:
        self.control.execute("select pg_advisory_unlock_all()")
        for session in active:
            if session.state != "finished":
                with suppress(psycopg.Error):
                    session.connection.cancel()
        while not self.events.empty():
            self.events.get()


def reaches(number: int, blocked: dict[int, set[int]], standing: set[int]) -> bool:
    """Whether a waiting session waits, directly or not, for one that can go on."""
    seen: set[int] = set()
    todo = [number]
    while todo:
        each = todo.pop()
        if each in standing:
            return True
        if each not in seen:
            seen.add(each)
            todo += blocked.get(each, ())
    return False


def preempted(choices: Sequence[Choice], schedule: Sequence[int]) -> int:
    """How often a session is left that could have gone on."""
    return sum(
        before != now and before in choices[at].enabled
        for at, (before, now) in enumerate(pairwise(schedule), 1)
    )


def shortened(sql: str) -> str:
    line = next((line for line in sql.splitlines() if line.strip() and not line.startswith("--")), sql)
    return line.strip()[:60]
