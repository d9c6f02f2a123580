"""A world of one thread: virtual time, a real SQLite in memory, dice from a seed, and faults.

Everything that happens is an event of some process at some moment. A process may die inside any statement, be paused
for longer than a lease, or lose the answer to what was committed; the database's clock may jump. Which of these a seed
has is decided by its dice, too (a seed with everything hides what a seed with one thing shows).
"""

from __future__ import annotations

import hashlib
import heapq
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from holdfast.clock import micros
from holdfast.errors import StoreUnavailable
from holdfast.store.migrate import migrate
from holdfast.store.plans.engine_sqlite import SqliteEngine
from holdfast.store.statement import Runnable, Statement, bound, drive

T = TypeVar("T")
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Died(BaseException):
    """The process ends here, without a word."""


@dataclass(frozen=True)
class Faults:
    """What may go wrong in this seed, and how much of it. Budgets keep innocents from the limit of starts."""

    crash: float = 0.0  # in a transaction
    lose_answer: float = 0.0
    unavailable: float = 0.0
    pause: float = 0.0  # of a process, longer than its lease
    jump: float = 0.0  # of the database's clock
    outage: float = 0.0  # of the database, longer than a lease
    budget: int = 6  # crashes and pauses together

    @classmethod
    def drawn(cls, dice: random.Random) -> Faults:
        def some(chance: float) -> float:
            return chance if dice.random() < 0.6 else 0.0

        return cls(some(0.03), some(0.05), some(0.05), some(0.02), some(0.05), some(0.03))


@dataclass
class Process:
    """Something that acts: a worker, a producer, an operator."""

    name: str
    life: int = 0  # events of an earlier life are void
    paused_until: float = 0.0


@dataclass
class World:
    """Time, the database, the dice and the record of what happened."""

    seed: int
    time: float = 0.0
    skew: float = 0.0  # of the database's clock
    calm: bool = False  # faults are over
    spent: int = 0
    away_until: float = 0.0  # the database is not there
    hits: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.faults = Faults.drawn(self.dice)
        self.engine = SqliteEngine()
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.trace = hashlib.blake2b(digest_size=8)
        self.lines: list[str] = []
        self.sleepers: list[Callable[[], None]] = []  # woken by the next commit
        self._events: list[tuple[float, int, Process, int, Callable[[], None]]] = []
        self._numbers = count()
        drive(bound(migrate("sqlite"), self.engine, self.now()), self._execute)
        self.db.execute("create table effect (id text, queue text)")
        self.db.execute("create table business (id text)")

    # -- time

    def tell(self, text: str) -> None:
        line = f"{self.time:.6f} {text}"
        self.trace.update(line.encode())
        self.lines.append(line)

    def after(self, seconds: float, process: Process, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.time + seconds, next(self._numbers), process, process.life, do))

    def run(self, until: Callable[[], bool], steps: int) -> int:
        """Let events happen until it is enough; answers how many did."""
        for step in range(steps):
            if not self._events or until():
                return step
            at, number, process, life, do = heapq.heappop(self._events)
            if life != process.life:
                continue
            if at < process.paused_until:
                heapq.heappush(self._events, (process.paused_until, number, process, life, do))
                continue
            self.time = max(self.time, at)
            try:
                do()
            except Died:
                pass  # it has ended its life itself
        self.wrong.append(f"not over after {steps} steps")
        return steps

    def database_now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.time + self.skew)

    def now(self) -> int:
        return micros(self.database_now())

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.dice.random() < probability

    def id(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128), version=4)

    # -- the database

    def _execute(self, statement: Statement) -> list[tuple[Any, ...]]:
        return self.db.execute(statement.sql, statement.params).fetchall()

    def transact(self, who: str, plan: Runnable[T], *, faulty: bool = True, hint: bool = True) -> T:
        """One transaction. It may die inside, never begin, or be committed without an answer.

        `hint`: it may have made work, so whoever sleeps is woken.
        """
        faulty = faulty and not self.calm
        if faulty and (self.time < self.away_until or self.chance(self.faults.unavailable)):
            self.hits["the database does not answer"] += 1
            raise StoreUnavailable("not there")
        die_at = self.dice.randrange(1, 14) if faulty and self._may_spend(self.faults.crash) else 0
        statements = 0

        def execute(statement: Statement) -> list[tuple[Any, ...]]:
            nonlocal statements
            statements += 1
            if statements == die_at:
                raise Died
            return self._execute(statement)

        self.db.execute("begin immediate")
        self.on_commit: list[Callable[[], None]] = []
        try:
            result = drive(bound(plan, self.engine, self.now()), execute)
        except Died:
            self.db.execute("rollback")
            self.spent += 1
            self.hits[f"death inside a transaction, before statement {min(die_at, 8)}"] += 1
            self.tell(f"{who} dies before statement {die_at}")
            raise
        except BaseException:
            self.db.execute("rollback")
            raise
        self.db.execute("commit")
        for do in self.on_commit:
            do()
        if hint:
            sleepers, self.sleepers = self.sleepers, []
            for wake in sleepers:
                wake()
        if faulty and self._may_spend(self.faults.crash / 2):
            self.spent += 1
            self.hits["death between commit and answer"] += 1
            self.tell(f"{who} dies after its commit")
            raise Died
        if faulty and self.chance(self.faults.lose_answer):
            self.hits["the answer to a commit is lost"] += 1
            self.tell(f"{who} hears no answer")
            raise StoreUnavailable("lost")
        return result

    def _may_spend(self, probability: float) -> bool:
        return self.spent < self.faults.budget and self.chance(probability)

    def query(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.db.execute(sql, params).fetchall()

    # -- faults from outside

    def disturb(self, processes: list[Process]) -> None:
        """Something may happen to somebody now."""
        if self.calm:
            return
        if self._may_spend(self.faults.pause):
            self.spent += 1
            victim = self.dice.choice(processes)
            seconds = self.dice.uniform(31, 90)
            victim.paused_until = self.time + seconds
            self.hits["a process is paused for longer than a lease"] += 1
            self.tell(f"{victim.name} is paused for {seconds:.1f} s")
        if self._may_spend(self.faults.outage):
            self.spent += 1
            self.away_until = self.time + self.dice.uniform(31, 60)
            self.hits["the database is away for longer than a lease"] += 1
            self.tell(f"the database is away until {self.away_until:.1f}")
        if self.chance(self.faults.jump):
            self.skew = self.dice.choice((0.0, -3600.0, 3600.0, 20.0, -20.0))
            self.hits["the database's clock jumps"] += 1
            self.tell(f"the clock is off by {self.skew}")
