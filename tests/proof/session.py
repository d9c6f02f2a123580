"""An operation, and a connection on which it is performed: for the explorer, which decides when it goes on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg

from holdfast.store.connecting_postgres import Int8BinaryLoader, Late, quick
from holdfast.store.statement import Rows, Statement
from holdfast.store.text import compile
from tests.proof.instrument import NOTICE

Body = Generator[Statement, Rows, Any]
State = Literal["ready", "running", "paused", "blocked", "finished"]
News = tuple[Literal["paused", "rows", "error"], Any]


@dataclass(frozen=True)
class Operation:
    """Something that a process does to the store.

    `conflicts`: texts of serialization failures (40001) and of ids that are taken (23505) that are documented for it;
    it is then begun anew and must succeed. `passed`: points at which nothing has happened since the one before, so that
    holding it there is idle.
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
    """One connection with the operation that it performs. It never waits by itself: `hear` when there is something."""

    number: int
    connection: psycopg.Connection[Any]
    state: State = "finished"
    pauses: int = 0  # that it has reached in this schedule
    pauses_before: int = 0  # and in the schedules before: points are numbered on and on
    operation: Operation | None = None
    world: Any = None
    body: Body | None = None
    pending: Statement | None = None
    result: Any = None
    retries: int = 0
    faults: list[str] = field(default_factory=list)
    passed: tuple[str, ...] = ()
    news: list[News] = field(default_factory=list)
    sending: Generator[Any, Any, None] | None = None
    cursor: psycopg.Cursor[Any] | None = None
    waits_for: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pid = self.connection.info.backend_pid
        self.connection.add_notice_handler(self._noticed)
        self.connection.execute(f"set proof.session = '{self.number}'".encode())
        self.plain = self.connection.cursor(binary=True)

    def fileno(self) -> int:
        return self.connection.fileno()

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if found := NOTICE.fullmatch(diagnostic.message_primary or ""):
            self.news.append(("paused", (found[1], int(found[2]))))

    def send(self, statement: Statement) -> None:
        """As the store's `execute`, but for the waiting: the driver's own steps are taken one by one."""
        self.pending, self.state = statement, "running"
        self.cursor = self.plain
        if statement.is_raw:
            self.cursor = self.connection.cursor(binary=True)
            self.cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)
        text = compile(statement.sql, "pyformat").sql
        self.sending = self.cursor._execute_gen(text, quick(statement.params))
        self._go_on(None)

    def send_begin(self, statement: Statement) -> None:
        """It waits for nobody."""
        answer = self.connection.pgconn.exec_(statement.sql.encode())
        assert answer.status == psycopg.pq.ExecStatus.COMMAND_OK, answer.error_message.decode()

    def hear(self) -> list[News]:
        """What has come since; the socket has something to read."""
        self._go_on(psycopg.waiting.Ready.R)
        heard, self.news = self.news, []
        return heard

    def _go_on(self, ready: Any) -> None:
        assert self.sending is not None
        try:
            self.sending.send(ready)
        except StopIteration:
            self.news.append(("rows", self._rows()))
        except Exception as error:  # whatever it is, the explorer judges it
            self.news.append(("error", error))

    def _rows(self) -> Any:
        assert self.cursor is not None
        assert self.pending is not None
        if self.pending.is_raw:
            return Late(self.cursor.fetchone(), self.cursor.rowcount, self.cursor.fetchall)
        answer = self.cursor.pgresult
        return self.cursor.fetchall() if answer is not None and answer.nfields else []

    def roll_back(self) -> None:
        if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.connection.execute("rollback")

    def pass_by(self, points: tuple[str, ...]) -> None:
        if points != self.passed:
            self.connection.execute(f"set proof.passed = '{','.join(points)}'".encode())
            self.passed = points
