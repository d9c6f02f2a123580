"""The same on PostgreSQL: connections whose cursors refuse SQL that would end a handler's transaction.

psycopg has no authorizer, so the text is checked before it is sent: its first word, and all of it only when there is
more than one statement in it. A cursor of another class, made by hand, is not checked; for it the end of the
transaction is noticed when the block ends, or at the next statement.
"""

from __future__ import annotations

from typing import Any, Never

import psycopg
from psycopg import pq, sql
from psycopg.rows import tuple_row

from ..errors import CommitRefused
from .handed import OVER, Guard
from .text import ends_transaction

IDLE = int(pq.TransactionStatus.IDLE)  # an int is compared for each statement


class CarefulCursor:
    """What a cursor of any kind checks before it executes. The classes below say which kind."""

    _conn: Any

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        look(self._conn, query)
        return super().execute(query, *arguments, **options)  # type: ignore[misc]

    def executemany(self, query: Any, *arguments: Any, **options: Any) -> Any:
        look(self._conn, query)
        return super().executemany(query, *arguments, **options)  # type: ignore[misc]

    def stream(self, query: Any, *arguments: Any, **options: Any) -> Any:
        look(self._conn, query)
        return super().stream(query, *arguments, **options)  # type: ignore[misc]

    def copy(self, statement: Any, *arguments: Any, **options: Any) -> Any:
        look(self._conn, statement)
        return super().copy(statement, *arguments, **options)  # type: ignore[misc]


def look(connection: Any, query: Any) -> None:
    if connection.pgconn.transaction_status == IDLE:
        raise CommitRefused(f"Nothing was executed. {OVER}")
    if not isinstance(query, str):
        is_text = isinstance(query, bytes)
        query = query.decode(errors="replace") if is_text else sql.as_string(query, connection)
    if (words := ends_transaction(query)) is not None:
        raise connection.guard.refuse(words)


class ClientSide(CarefulCursor, psycopg.Cursor[Any]):
    pass


class ServerSide(CarefulCursor, psycopg.ServerCursor[Any]):
    pass


class AsyncClientSide(CarefulCursor, psycopg.AsyncCursor[Any]):
    pass


class AsyncServerSide(CarefulCursor, psycopg.AsyncServerCursor[Any]):
    pass


class HandedOut(psycopg.Connection[Any]):
    """A connection of the engine's, which handlers get for their transactions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.guard = Guard()

    def hand_out(self) -> None:
        self.cursor_factory, self.server_cursor_factory = ClientSide, ServerSide
        self.guard.hand_out()

    def take_back(self) -> None:
        """Reset what a handler may have set, for the engine's statements."""
        self.cursor_factory, self.server_cursor_factory = psycopg.Cursor, psycopg.ServerCursor
        self.row_factory = tuple_row

    def __enter__(self) -> Never:
        raise self.guard.refuse("`with connection:`, which ends with a commit,")

    def commit(self) -> None:
        raise self.guard.refuse("commit()")

    def rollback(self) -> None:
        raise self.guard.refuse("rollback()")


class AsyncHandedOut(psycopg.AsyncConnection[Any]):
    """The same for async handlers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.guard = Guard()

    def hand_out(self) -> None:
        self.cursor_factory, self.server_cursor_factory = AsyncClientSide, AsyncServerSide
        self.guard.hand_out()

    def take_back(self) -> None:
        self.cursor_factory, self.server_cursor_factory = psycopg.AsyncCursor, psycopg.AsyncServerCursor
        self.row_factory = tuple_row

    async def __aenter__(self) -> Never:
        raise self.guard.refuse("`async with connection:`, which ends with a commit,")

    async def commit(self) -> None:
        raise self.guard.refuse("commit()")

    async def rollback(self) -> None:
        raise self.guard.refuse("rollback()")


def is_open(connection: HandedOut | AsyncHandedOut) -> bool:
    """Whether a transaction is open. A connection that is lost says so itself when it is used."""
    return connection.pgconn.transaction_status != IDLE
