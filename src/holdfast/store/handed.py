"""The connection that a handler gets from ctx.transaction(): the handler may do everything but end the transaction.

The engine's commit is fenced by the lease. Any other commit would store half of the block, and store it again at each
retry. So a commit or a rollback is refused before it happens. After a refusal the block is never committed, even if
the handler catches the error and continues. A handler may use savepoints.

On SQLite an authorizer, set once for each connection, sees every statement that ends a transaction, however it is sent:
a method, `with db:`, `executescript` or SQL. SQLite asks it when a statement is prepared, and Python keeps prepared
statements by their text. So our own commit has a text of its own.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import Any, Never

from ..errors import CommitRefused, UsageError

REMEDY = (
    "Inside ctx.transaction() only the engine commits, at the end of the block and together with the message. "
    "Leave it out; to undo everything raise an exception, to undo a part use a savepoint."
)
OVER = (
    "The transaction of this block is over, rolled back by the database after an error or closed: anything written now "
    "would be committed by itself, without the message. Let that error leave the block."
)

BEGIN, COMMIT, ROLLBACK = (
    "begin immediate /* holdfast */",
    "commit /* holdfast */",
    "rollback /* holdfast */",
)


class Guard:
    """Lets only the engine end the transaction that is open on a connection."""

    __slots__ = ("is_ours", "outer", "refusal")

    def __init__(self) -> None:
        self.is_ours = True  # the engine uses the connection now, not the handler
        self.outer: BaseException | None = None  # the exception being handled around the block
        self.refusal: CommitRefused | None = None

    def hand_out(self) -> None:
        """Hand the connection to the handler. Called in its thread or task, to see which exception it handles."""
        self.is_ours, self.refusal, self.outer = False, None, sys.exception()

    def take_back(self, is_open: bool) -> None:
        """Take the connection back. After a refusal nothing of the block may be committed."""
        self.is_ours, self.outer = True, None
        if self.refusal is not None:
            raise CommitRefused(str(self.refusal)) from self.refusal
        if not is_open:
            raise CommitRefused(f"Nothing more of this block can be stored. {OVER}")

    def refuse(self, what: str) -> CommitRefused:
        """The error for a refused commit. It must not hide an exception that is being handled."""
        return self.refuse_during(what, sys.exception())

    def refuse_during(self, what: str, during: BaseException | None) -> CommitRefused:
        self.refusal = CommitRefused(
            f"{what} was refused, and nothing of this block is stored. {REMEDY}",
            None if during is self.outer else during,
        )
        return self.refusal

    def allows(self, action: int, operation: str | None, *_: object) -> int:
        """The authorizer of SQLite. It is called for each table and column of a statement that is prepared."""
        if action != sqlite3.SQLITE_TRANSACTION or self.is_ours or operation == "BEGIN":  # refused by SQLite
            return sqlite3.SQLITE_OK
        self.refuse(f"{operation}")
        return sqlite3.SQLITE_DENY


class CarefulCursor(sqlite3.Cursor):
    """Raises our error for what the authorizer has refused, and writes nothing when the transaction is over."""

    def execute(self, *arguments: Any) -> CarefulCursor:
        return self._careful(super().execute, arguments)

    def executemany(self, *arguments: Any) -> CarefulCursor:
        return self._careful(super().executemany, arguments)

    def executescript(self, *_: Any) -> Never:
        raise self._handed_out.guard.refuse("executescript(), which begins with a commit,")

    @property
    def _handed_out(self) -> HandedOut:
        connection = self.connection
        assert isinstance(connection, HandedOut)
        return connection

    def _careful(self, execute: Any, arguments: tuple[Any, ...]) -> CarefulCursor:
        connection = self._handed_out
        if not connection.in_transaction and not connection.guard.is_ours:
            raise CommitRefused(f"Nothing was executed. {OVER}")
        try:
            execute(*arguments)
        except sqlite3.DatabaseError as error:
            refusal = connection.guard.refusal
            # An error of Python itself, such as a wrong number of parameters, has no code.
            if refusal is None or getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_AUTH:
                raise
            raise refusal from error
        return self


class HandedOut(sqlite3.Connection):
    """A connection for handlers' transactions, one after another."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.guard = Guard()
        super().set_authorizer(self.guard.allows)

    # Of the engine

    def begin(self) -> None:
        super().execute(BEGIN)

    def take_back(self) -> None:
        self.guard.take_back(self.in_transaction)
        self._as_it_was()

    def _as_it_was(self) -> None:
        """Reset what a handler may have set, for the engine's statements and the next handler."""
        self.row_factory, self.text_factory = None, str

    def end(self) -> None:
        if not self.guard.is_ours:  # nothing of the engine's was executed in it
            self.take_back()
        super().execute(COMMIT)

    def undo(self) -> None:
        self.guard.is_ours = True
        if self.in_transaction:
            super().execute(ROLLBACK)
        self.guard.is_ours = False
        self._as_it_was()

    # Of the handler

    def __enter__(self) -> Never:
        raise self.guard.refuse("`with db:`, which ends with a commit,")

    def commit(self) -> None:
        raise self.guard.refuse("commit()")

    def rollback(self) -> None:
        raise self.guard.refuse("rollback()")

    def cursor(self, factory: Any = CarefulCursor) -> Any:
        return super().cursor(factory)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if self.guard.is_ours:
            return super().execute(*arguments)
        made: sqlite3.Cursor = self.cursor().execute(*arguments)
        return made

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        made: sqlite3.Cursor = self.cursor().executemany(*arguments)
        return made

    def executescript(self, *_: Any) -> Never:
        raise self.guard.refuse("executescript(), which begins with a commit,")

    def set_authorizer(self, *_: Any) -> Never:
        raise UsageError(
            "set_authorizer() was refused: the connection of ctx.transaction() has the engine's own, which refuses "
            "commits. Open a connection of your own for it."
        )
