"""PostgreSQL's errors as ours: those that pass by themselves, and those that need a migration, rights or settings."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from ..errors import (
    HoldfastError,
    InvalidSettings,
    NotMigrated,
    NotPermitted,
    StoreTooSlow,
    StoreUnavailable,
)
from .moments import moment

AsOurs = Callable[[psycopg.Error, str], Exception]

MISSING = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
)


def as_ours(error: psycopg.Error, schema: str) -> HoldfastError | psycopg.Error:
    """Our error for one of the engine's own statements. One that passes by itself is StoreUnavailable."""
    if isinstance(error, MISSING) and schema in str(error):
        return NotMigrated(
            f"The database has no Holdfast tables of this version in schema {schema}: run `holdfast migrate`."
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return NotPermitted(
            f"The role of this connection may not do this in schema {schema}: {first_line(error)}. "
            "`holdfast grants` prints what workers, producers and viewers need."
        )
    if error.sqlstate in SOMEBODY_ELSES:
        return InvalidSettings(
            f"A prepared statement of this connection is not on the server ({first_line(error)}): there is a pooler in "
            f"between. {POOLER}"
        )
    if (ours := cut_off(error, schema)) is not error:
        return ours
    match moment(error.sqlstate or ""):
        case "wait":
            return StoreUnavailable(f"The database refuses this at the moment: {first_line(error)}.")
        case "smaller":
            return StoreTooSlow(
                f"The database ended a statement: it took too long, or somebody cancelled it: {first_line(error)}."
            )
    return error


# Errors that a session may keep for ever: it is on a standby, or has a prepared statement of an older schema.
STALE = frozenset(("25006", "0A000", "XX000", "26000", "42P05"))

# A prepared statement that exists already, or does not exist: the session is shared with others.
SOMEBODY_ELSES = ("42P05", "26000")
POOLER = (
    "Say so with ?pooler=transaction in the URL of the database, or connect to PostgreSQL itself "
    "(docs/deployment.md, Poolers)."
)

# A lost connection, a server that stops or starts or has no room; and a transaction that the server has ended.
CUT_OFF = ("08", "57P", "53", "25P03", "25P04")


def cut_off(error: psycopg.Error, schema: str) -> HoldfastError | psycopg.Error:
    """Errors of a handler's statements are raised unchanged, unless the connection is lost."""
    if "unsupported startup parameter" in str(error):
        return InvalidSettings(
            f"The database is behind PgBouncer or another pooler: {first_line(error)}. {POOLER}"
        )
    if error.sqlstate is None:  # the server gave no answer
        is_lost = isinstance(error, psycopg.InterfaceError | psycopg.OperationalError)
    else:
        is_lost = error.sqlstate.startswith(CUT_OFF)
    return StoreUnavailable(f"The database did not answer: {first_line(error)}.") if is_lost else error


def first_line(error: psycopg.Error) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
