"""Recognises the kind of handle that a user passes.

The names of its classes decide, so nothing is imported that the user does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..errors import WrongHandle
from .handles import (
    Aiosqlite,
    Alchemy,
    AlchemyAsync,
    Asyncpg,
    Django,
    Handle,
    Psycopg,
    Psycopg2,
    PsycopgAsync,
    Sqlite,
)  # fmt: skip
from .text import Dialect, Style

ALCHEMY_STYLES: dict[str, Style] = {
    "pysqlite": "named", "aiosqlite": "named", "asyncpg": "numeric",
    "psycopg": "pyformat", "psycopg_async": "pyformat", "psycopg2": "pyformat",
}  # fmt: skip

ACCEPTED = (
    "sqlite3.Connection, aiosqlite.Connection, psycopg.Connection and AsyncConnection, a psycopg2 connection, "
    "asyncpg.Connection (also from a pool), SQLAlchemy Session, scoped_session, Connection, AsyncSession, "
    "async_scoped_session and AsyncConnection, and Django's connection"
)


def recognise(handle: Any) -> Handle:
    """What this handle is, or WrongHandle.

    >>> recognise(sqlite3.connect(":memory:")).kind
    'sqlite3.Connection'
    """
    if type(handle) is not handle.__class__:  # a proxy of an instrumentation or a web framework
        handle = getattr(handle, "__wrapped__", handle)
    return maker_of(handle.__class__)(handle)


@lru_cache(maxsize=256)
def maker_of(cls: type) -> Callable[[Any], Handle]:
    """The first known class among its base classes decides how it is used."""
    for ancestor in cls.__mro__:
        key = package, name = ancestor.__module__.partition(".")[0], ancestor.__name__
        if maker := MAKERS.get(key):
            return maker
        if advice := ADVICE.get(key):
            raise WrongHandle(f"A {package} {name} is not a handle of a transaction: {advice}.")
    raise WrongHandle(f"A {cls.__qualname__} is not a handle of a transaction. Accepted: {ACCEPTED}.")


def make_django(handle: Any) -> Handle:
    match handle.vendor:
        case "sqlite":
            return Django(handle, dialect="sqlite")
        case "postgresql":
            return Django(handle)
        case other:
            raise WrongHandle(
                f"A Django connection to {other} cannot be used: Holdfast needs SQLite or PostgreSQL."
            )


def make_alchemy(handle: Any) -> Handle:
    if hasattr(handle, "registry"):  # scoped: the session of this thread or task
        handle = handle()
    name = type(handle).__name__
    dialect = alchemy_dialect(handle)
    kind = f"SQLAlchemy {name} ({dialect.name}+{dialect.driver})"
    style = ALCHEMY_STYLES.get(dialect.driver)
    if style is None:
        raise WrongHandle(
            f"A {kind} cannot be used: Holdfast knows the drivers {', '.join(sorted(ALCHEMY_STYLES))}."
        )
    database: Dialect = "sqlite" if dialect.name == "sqlite" else "postgres"
    make = AlchemyAsync if hasattr(handle, "run_sync") else Alchemy
    return make(handle, kind, database, style)


def alchemy_dialect(handle: Any) -> Any:
    if hasattr(handle, "dialect"):
        return handle.dialect
    try:
        return handle.get_bind().dialect
    except Exception as error:  # UnboundExecutionError: several binds and no default, or none at all
        raise WrongHandle(
            "This SQLAlchemy session does not say which database it means. "
            "Bind it, or hand over one of its connections: `on=session.connection(bind_arguments={...})`."
        ) from error


MAKERS: dict[tuple[str, str], Callable[[Any], Handle]] = {
    ("sqlite3", "Connection"): Sqlite,
    ("aiosqlite", "Connection"): Aiosqlite,
    ("psycopg", "Connection"): Psycopg,
    ("psycopg", "AsyncConnection"): PsycopgAsync,
    ("psycopg2", "connection"): Psycopg2,
    ("asyncpg", "Connection"): Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): lambda handle: Asyncpg(handle, "asyncpg.Connection of a pool"),
    ("django", "BaseDatabaseWrapper"): make_django,
    ("django", "ConnectionProxy"): make_django,
    **{
        ("sqlalchemy", name): make_alchemy
        for name in (
            "Session", "scoped_session", "Connection", "AsyncSession", "async_scoped_session", "AsyncConnection",
        )
    },
}  # fmt: skip

CURSOR = "hand over its connection, which owns the transaction"
POOL = "take a connection from it, open a transaction, and hand over that connection"
ENGINE = "open a transaction, `with engine.begin() as connection`, and hand over that connection"
FACTORY = "hand over a session that it made"

ADVICE: dict[tuple[str, str], str] = {
    ("sqlite3", "Cursor"): CURSOR, ("aiosqlite", "Cursor"): CURSOR,
    ("psycopg", "BaseCursor"): CURSOR, ("psycopg2", "cursor"): CURSOR, ("asyncpg", "Cursor"): CURSOR,
    ("psycopg", "Transaction"): CURSOR, ("psycopg", "AsyncTransaction"): CURSOR, ("asyncpg", "Transaction"): CURSOR,
    ("psycopg_pool", "BasePool"): POOL, ("psycopg2", "AbstractConnectionPool"): POOL, ("asyncpg", "Pool"): POOL,
    ("sqlalchemy", "Engine"): ENGINE, ("sqlalchemy", "AsyncEngine"): f"{ENGINE} (with `async with`)",
    ("sqlalchemy", "sessionmaker"): FACTORY, ("sqlalchemy", "async_sessionmaker"): FACTORY,
    ("sqlalchemy", "_ConnectionFairy"): "hand over its `driver_connection`",
    ("django", "CursorWrapper"): "hand over `django.db.connection`",
    ("django", "ConnectionHandler"): "hand over one of them, `connections['default']`",
}  # fmt: skip
