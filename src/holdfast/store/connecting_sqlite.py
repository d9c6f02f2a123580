"""Connections to a SQLite file: opening them, running a statement, and the meaning of its errors."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from ..errors import InvalidSettings, NotMigrated, StoreUnavailable
from .handed import HandedOut
from .moments import sqlite_waits
from .statement import Rows, Statement

Kind = TypeVar("Kind", bound=sqlite3.Connection)

BUSY_SECONDS = 30.0
SWITCH_TRIES, SWITCH_PAUSE = 500, 0.01
PRAGMAS = ("journal_mode=wal", "synchronous=full", "cache_size=-65536", "mmap_size=268435456",
           "journal_size_limit=67108864", "temp_store=memory")  # fmt: skip


def connect(path: str, *, readonly: bool = False) -> sqlite3.Connection:
    connection = opened(path, sqlite3.Connection)
    pragmas = ["query_only=on", "wal_autocheckpoint=0"] if readonly else [*PRAGMAS, "wal_autocheckpoint=4000"]
    return tuned(connection, pragmas)


def connect_handed_out(path: str) -> HandedOut:
    # Two checkpoints at one instant can corrupt a WAL file before SQLite 3.51.3, so only the writer makes them.
    return tuned(opened(path, HandedOut), [*PRAGMAS, "wal_autocheckpoint=0"])


def opened(path: str, kind: type[Kind]) -> Kind:
    if path != ":memory:":
        prepare(Path(path))
    made: dict[str, Any] = {} if kind is sqlite3.Connection else {"factory": kind}
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, **made
    )
    return cast(Kind, connection)


def tuned(connection: Kind, pragmas: Sequence[str]) -> Kind:
    for pragma in pragmas:
        patiently(connection, f"pragma {pragma}")
    return connection


def patiently(connection: sqlite3.Connection, sql: str) -> None:
    """Retry the switch of a new file to WAL: SQLite's busy timeout does not cover others who do it at the same time."""
    for n in range(SWITCH_TRIES):
        try:
            connection.execute(sql)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or n == SWITCH_TRIES - 1:
                raise
            threading.Event().wait(SWITCH_PAUSE)


def prepare(path: Path) -> None:
    """Create the file for its owner only; an existing file keeps its mode. A symbolic link is refused."""
    if path.is_symlink():
        raise InvalidSettings(f"{path} is a symbolic link: give the path of the database file itself.")
    if not path.parent.is_dir():
        raise InvalidSettings(f"There is no folder {path.parent} to make the database {path.name} in.")
    if not path.exists():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass


def execute(connection: sqlite3.Connection, statement: Statement) -> Rows:
    try:
        return fetched(connection, statement)
    except sqlite3.OperationalError as error:
        if "Could not decode to UTF-8" not in str(error) or not READS.match(statement.sql):
            raise
    # A text in the rows is not UTF-8. Read again with \xff for it, which is neither JSON nor a name of ours.
    connection.text_factory = lambda data: data.decode(errors="backslashreplace")
    try:
        return fetched(connection, statement)
    finally:
        connection.text_factory = str


READS = re.compile(r"(\s|--[^\n]*\n)*(select|with)\b", re.IGNORECASE)


def fetched(connection: sqlite3.Connection, statement: Statement) -> Rows:
    cursor = connection.execute(statement.sql, statement.params)
    if statement.enough is None:
        return cursor.fetchall()
    rows = []
    for row in cursor:
        rows.append(row)
        if statement.enough(row):
            break
    cursor.close()
    return rows


# A connection that was opened while its file could not be written stays read-only for ever, and one to a file system
# that has gone away stays broken.
STALE = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN))


def is_stale(error: Exception) -> bool:
    """Whether the next try needs a new connection."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in STALE


def is_locked(code: int) -> bool:
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def as_ours(error: Exception, path: str) -> Exception:
    if not isinstance(error, sqlite3.OperationalError):
        return error
    text, code = str(error), getattr(error, "sqlite_errorcode", 0)
    if "no such table: holdfast_" in text or "no such table: main.holdfast_" in text:
        return NotMigrated(f"{path} has no Holdfast tables: run `holdfast migrate` on it.")
    if is_locked(code):
        return StoreUnavailable(
            f"{path} has been locked for {BUSY_SECONDS:.0f} s by another connection that writes: "
            "end its transaction. If it is your own, publish in it: app.publish(..., on=connection)."
        )
    return StoreUnavailable(f"{path} cannot be used: {text}.{advice(text)}") if sqlite_waits(code) else error


def advice(text: str) -> str:
    """What to do about a disk error."""
    if "full" in text:
        return " Make room on its disk; nothing of this transaction was stored, and workers continue automatically."
    if "readonly" in text or "unable to open" in text:
        return " Its file, its folder and their file system must be writable."
    return " Look at the disk and at the system's log."
