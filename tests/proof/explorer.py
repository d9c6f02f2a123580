"""Every order in which the steps of two or three storage operations can happen, on real PostgreSQL connections.

An operation is a plan that also says BEGIN and COMMIT. Its steps lie between the points where it can be held: before
each statement, and inside the engine's functions at each `-- step:` (instrument.py), the deferred trigger of COMMIT
included. A schedule is the list of who goes next. All schedules are found by running one, looking where another
session could have gone on instead, and beginning anew from there: what is waiting for a lock cannot go on, so no
schedule is tried in vain and none twice.

`preemptions` bounds how often a session that could go on is left for another one; None is no bound. Most bugs need one.
Schedules with few of them come first. So whoever stops after some number of schedules has seen the likely ones.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import psycopg

from holdfast.errors import HoldfastError
from holdfast.store.connecting_postgres import tune
from holdfast.store.statement import Rows, bound
from tests.proof.instrument import PAUSES
from tests.proof.session import Operation, Quiet, Restart, Session, State

Hold = tuple[int, int]  # a session, and which of its pauses in this schedule

QUIET = 0.001  # seconds without news after which the server is asked who waits for whom; doubled each time
PATIENT = 0.016  # and where nobody waited when the same steps were taken before
STUCK = 20.0
RETRIES = 4
REPEATS = 5
SETTINGS = {
    "deadlock_timeout": "15ms",
    "timezone": "UTC",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",  # as the store has it
    "synchronous_commit": "off",
}
CONTROL = {
    "hold": "select bool_and(pg_try_advisory_lock($1, n)) from unnest($2::int[]) n",
    "let go": "select pg_advisory_unlock($1, $2)",
    "let all go": "select pg_advisory_unlock_all()",
    "look": "select pg_blocking_pids($1), pg_blocking_pids($2), pg_blocking_pids($3)",
}


@dataclass
class Choice:
    """Where a schedule could have gone another way, and what came of the way it went."""

    enabled: tuple[int, ...]
    chosen: int
    stop: int = 0  # at which of its pauses the chosen one stood then, if at one
    waits: bool = False  # whether somebody waited for a lock then


@dataclass(frozen=True)
class Beginning:
    """How a schedule has to begin, and what is known of it from the one from which it branches off."""

    schedule: tuple[int, ...] = ()
    holds: frozenset[Hold] = frozenset()  # pauses at which a session is left for another one
    waits: tuple[bool, ...] = ()
    preemptions: int = 0


@dataclass
class Run:
    """What one schedule did."""

    beginning: Beginning = Beginning()
    choices: list[Choice] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    conflicts: int = 0
    left: Any = None  # what the tables had in them at the end
    strayed: bool = False  # whether it did not begin as it had to

    @property
    def schedule(self) -> list[int]:
        return [choice.chosen for choice in self.choices]

    def choose(self, enabled: tuple[int, ...], last: int) -> int:
        """As the beginning says, then whoever went last goes on as long as it can."""
        at, given = len(self.choices), self.beginning.schedule
        chosen = last if last in enabled else enabled[0]
        if at < len(given) and not self.strayed:
            self.strayed = given[at] not in enabled
            chosen = chosen if self.strayed else given[at]
        self.choices.append(Choice(enabled, chosen))
        return chosen

    def passed(self, enabled: tuple[int, ...], session: int) -> None:
        """A session has gone on without being held."""
        at, given = len(self.choices), self.beginning.schedule
        self.strayed = self.strayed or (at < len(given) and given[at] != session)
        self.choices.append(Choice(enabled, session))

    def quiet(self) -> float:
        """How long to wait for news of the last step."""
        at, waits = len(self.choices) - 1, self.beginning.waits
        return PATIENT if at < len(waits) and not waits[at] and not self.strayed else QUIET

    def branches(self, preemptions: int | None) -> Iterator[Beginning]:
        """The other ways, from where this schedule was free to choose."""
        for at in range(0 if self.strayed else len(self.beginning.schedule), len(self.choices)):
            choice = self.choices[at]
            for other in choice.enabled:
                schedule = (*self.schedule[:at], other)
                count = preempted(self.choices, schedule)
                if other != choice.chosen and (preemptions is None or count <= preemptions):
                    left = zip(self.choices, pairwise(schedule), strict=False)
                    holds = {(was, step.stop) for step, (was, now) in left if was != now and step.stop}
                    waits = tuple(each.waits for each in self.choices[:at])
                    yield Beginning(schedule, frozenset(holds), waits, count)


class Explorer:
    """Connections to one instrumented database, and the locks that hold its sessions.

    A session is held where the schedule leaves it for another one. Where it goes on anyway it is not: its notices say
    which points it passes, and as long as all others stand, nothing can happen there. Whoever goes on while another
    one waits for a lock, or has waited, is held at its next point, for both may run then.
    """

    def __init__(self, dsn: str, sessions: int = 3) -> None:
        self.dsn, self.count = dsn, sessions
        self._open()

    def _open(self) -> None:
        self.control = psycopg.connect(self.dsn, autocommit=True)
        settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        self.sessions = []
        for number in range(1, self.count + 1):
            connection = psycopg.connect(self.dsn, autocommit=True, options=settings)
            tune(connection)
            self.sessions.append(Session(number, connection))
            self.control.execute(f"select setval('proof.pause_{number}', 1, false)".encode())
        for name, text in CONTROL.items():
            self.control.pgconn.prepare(name.encode(), text.encode())
        self.held: set[Hold] = set()

    def close(self) -> None:
        self.control.close()
        for session in self.sessions:
            session.connection.close()

    def _tell(self, statement: str, *values: object) -> None:
        self._answer()
        self.control.pgconn.send_query_prepared(statement.encode(), [str(each).encode() for each in values])
        self.control.pgconn.flush()

    def _ask(self, statement: str, *values: object) -> psycopg.pq.abc.PGresult:
        self._tell(statement, *values)
        answer = self._answer()
        assert answer is not None
        return answer

    def _answer(self) -> psycopg.pq.abc.PGresult | None:
        """That to the last thing told, if it was not taken yet."""
        answer = None
        while (found := self.control.pgconn.get_result()) is not None:
            answer = found
            assert answer.status == psycopg.pq.ExecStatus.TUPLES_OK, answer.error_message.decode()
        return answer

    # -- all schedules

    def explore(
        self,
        operations: Sequence[Operation],
        world: Any,
        preemptions: int | None = None,
        seed: int = 0,
    ) -> Iterator[Run]:
        """Run every schedule, each from the world's beginning, those with few preemptions first; the seed orders the
        others. The caller checks what each has left, and may stop."""
        dice = random.Random(seed)
        todo = [(0, 0.0, Beginning())]
        known = {()}
        while todo:
            _, _, beginning = heappop(todo)
            for run in self._repeated(operations, world, beginning):
                for branch in run.branches(preemptions):
                    if branch.schedule not in known:
                        known.add(branch.schedule)
                        heappush(todo, (branch.preemptions, dice.random(), branch))
                yield run

    def _repeated(self, operations: Sequence[Operation], world: Any, beginning: Beginning) -> Iterator[Run]:
        """Two sessions that a third one lets go at the same moment may go on in either order, as the server likes. A
        run in which they did not do it as before is one of its own, and the same is tried again."""
        for _ in range(REPEATS):
            run = self.run(operations, world, beginning)
            run.left = world.turn()
            assert len(operations) > 2 or not run.strayed, f"{beginning} is not repeated: {run.trace}"
            yield run
            if not run.strayed:
                break

    def run(self, operations: Sequence[Operation], world: Any, beginning: Beginning) -> Run:
        """One schedule."""
        run = Run(beginning)
        active = self.sessions[: len(operations)]
        try:
            for session, operation in zip(active, operations, strict=True):
                self._begin(session, operation, world)
            for session in active:
                ours = (pause for number, pause in beginning.holds if number == session.number)
                assert self._hold(session, *ours)
            last = active[0].number
            while any(s.state != "finished" for s in active):
                last = run.choose(enabled(active), last)
                self._step(active[last - 1], active, run)
                self._settle(active, run)
                run.choices[-1].waits = any(s.state == "blocked" for s in active)
            self._let_all_go()
        except BaseException:  # sessions may stand anywhere: with new ones nothing is left of it
            self._reopen(active, world)
            raise
        run.results = [s.result for s in active]
        run.faults += [f"{s.operation}: {fault}" for s in active for fault in s.faults]
        run.conflicts = sum(s.retries for s in active)
        return run

    def _hold(self, session: Session, *pauses: int) -> bool:
        """Whether it will stop at these pauses; no, when it has passed one of them already."""
        if new := {(session.number, pause) for pause in pauses} - self.held:
            numbers = ",".join(str(session.pauses_before + pause) for _, pause in new)
            if self._ask("hold", session.number, f"{{{numbers}}}").get_value(0, 0) != b"t":
                return False
            self.held |= new
        return True

    def _let_go(self, session: Session) -> None:
        """Nobody waits for the answer: the session itself will tell."""
        self.held.remove((session.number, session.pauses))
        self._tell("let go", session.number, session.pauses_before + session.pauses)

    def _let_all_go(self) -> None:
        if self.held:
            self._ask("let all go")
            self.held.clear()

    def _reopen(self, active: Iterable[Session], world: Any) -> None:
        for session in active:
            with suppress(psycopg.Error):
                self.control.execute("select pg_terminate_backend(%s, 5000)", [session.pid])
        self.close()
        self._open()
        world.turn()

    # -- one session

    def _begin(self, session: Session, operation: Operation, world: Any) -> None:
        session.operation, session.world = operation, world
        session.retries, session.faults = 0, []
        session.pauses_before, session.pauses = session.pauses_before + session.pauses, 0
        session.pass_by(operation.passed)
        self._restart(session)

    def _restart(self, session: Session) -> None:
        assert session.operation is not None
        session.result = None
        world = session.world
        session.body = bound(session.operation.body(world), world.store.engine, world.now)
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
        session.roll_back()

    def _again(self, session: Session, why: str) -> None:
        session.retries += 1
        session.roll_back()
        if session.retries > RETRIES:
            session.faults.append(f"does not succeed after {RETRIES} retries ({why})")
            self._finish(session, None)
            return
        self._restart(session)

    def _step(self, session: Session, active: Sequence[Session], run: Run) -> None:
        """Let a session go on to its next stop."""
        if any(s.state in ("running", "blocked") for s in active if s is not session):
            assert self._hold(session, session.pauses + 1)
        if session.state == "paused":
            run.trace.append(f"{session.number} goes on")
            session.state = "running"
            self._let_go(session)
            return
        assert session.pending is not None
        run.trace.append(f"{session.number} sends {shortened(session.pending.sql)}")
        if isinstance(session.pending, Quiet) and session.pending.sql.startswith("begin"):
            session.send_begin(session.pending)
            self._advance(session, [])
            self._step(session, active, run)
            return
        session.send(session.pending)

    # -- until all of them stand

    def _settle(self, active: Sequence[Session], run: Run) -> None:
        """Until every session stands: held, ready for its next statement, at its end, or waiting for another.

        Who waits is let go by what another one does before it reports its own stop. So one look after the last report
        says who still waits; a look that changes what is known is followed by another one.
        """
        give_up = time.monotonic() + STUCK
        quiet, looked = run.quiet(), False
        while True:
            assert time.monotonic() < give_up, f"stuck: {run.trace}"
            running = any(s.state == "running" for s in active)
            waiting = any(s.state == "blocked" for s in active)
            if not running and not waiting:
                return
            if not running and looked:
                if self._can_go_on(active):
                    return
                self._listen(active, STUCK, run)  # a circle: the server will break it
                looked = False
            elif running and self._listen(active, quiet, run):
                quiet, looked = run.quiet(), False
            else:
                looked = not self._look(active)
                quiet = min(2 * quiet, PATIENT)

    def _listen(self, active: Sequence[Session], seconds: float, run: Run) -> bool:
        """Whether there was news within that time."""
        asked = [s for s in active if s.state in ("running", "blocked")]
        ready, _, _ = select.select(asked, (), (), seconds)
        heard = False
        for session in ready:
            for kind, value in session.hear():
                heard = True
                self._heard(session, kind, value, active, run)
        return heard

    def _heard(self, session: Session, kind: str, value: Any, active: Sequence[Session], run: Run) -> None:
        if kind == "paused":
            self._paused(session, *value, active, run)
        elif kind == "rows":
            quiet = isinstance(session.pending, Quiet)
            self._advance(session, value)
            if quiet and session.state == "ready":
                self._step(session, active, run)
        else:
            self._failed(session, value, run)

    def _paused(self, session: Session, name: str, number: int, active: Sequence[Session], run: Run) -> None:
        session.pauses += 1
        assert number == session.pauses_before + session.pauses
        assert session.pauses <= PAUSES, f"more than {PAUSES} stops: {run.trace}"
        run.trace.append(f"{session.number} is at {name}")
        if run.choices[-1].chosen == session.number:
            run.choices[-1].stop = session.pauses
        session.state = "paused"
        if (session.number, session.pauses) not in self.held:  # it has gone on already
            assert all(s.state in ("ready", "paused", "finished") for s in active), run.trace
            run.passed(enabled(active), session.number)
            run.trace.append(f"{session.number} goes on")
            session.state = "running"

    def _failed(self, session: Session, error: Exception, run: Run) -> None:
        state = getattr(error, "sqlstate", None)
        text = str(error).splitlines()[0] if str(error) else repr(error)
        run.trace.append(f"{session.number} fails: {state} {text}")
        assert session.operation is not None
        if state in ("40001", "23505") and any(known in text for known in session.operation.conflicts):
            self._again(session, text)
            return
        session.faults.append(f"{state} {text}")
        self._finish(session, error)

    def _look(self, active: Sequence[Session]) -> bool:
        """Ask who waits for whom; whether that was news. Who waits for another session stands as well."""
        answer = self._ask("look", *(s.pid for s in self.sessions))
        changed = False
        for at, session in enumerate(active):
            if session.state in ("running", "blocked"):
                value = answer.get_value(0, at) or b""
                by = {int(pid) for pid in value.strip(b"{}").split(b",") if pid}
                session.waits_for = {s.number for s in active if s.pid in by}
                # If it has passed its next pause meanwhile, there is news of it on the way.
                waits = bool(session.waits_for) and self._hold(session, session.pauses + 1)
                state: State = "blocked" if waits else "running"
                changed = changed or state != session.state
                session.state = state
        return changed

    def _can_go_on(self, active: Sequence[Session]) -> bool:
        """Whether all that wait do so for one that stands. A circle of waiting sessions is not a stop."""
        blocked = {s.number: s.waits_for for s in active if s.state == "blocked"}
        standing = {s.number for s in active if s.state in ("ready", "paused")}
        return all(reaches(number, blocked, standing) for number in blocked)


def enabled(active: Iterable[Session]) -> tuple[int, ...]:
    return tuple(s.number for s in active if s.state in ("ready", "paused"))


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
