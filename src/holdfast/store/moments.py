"""Which errors of a database are moments: they pass by themselves, and a running worker waits until then.

| SQLSTATE | what it is | what is done |
|---|---|---|
| 08..., none at all, 57P... | the connection is lost, the server stops, starts or ends our session | wait |
| 53..., 58... | too many connections, no room on the disk, no memory, an I/O error | wait |
| 25006 | read only: a failover left us on a standby, or an operator closed the database to writers | wait |
| 55P03, 55006 | a lock or an object that is held for longer than we wait, for example by a migration | wait |
| 25P03, 25P04 | the server ended our transaction: idle, or open for too long | wait |
| 28... | the role or its password: they may be changed at this moment | wait |
| 40001, 40P01, 40003 | a serialization failure, a deadlock, an unknown end | again, then wait |
| 57014 | the statement took too long, or an operator cancelled it | smaller |
| 0A000, 3F000, 42704, 42883, 42703, 42P01, XX000 | the schema changed while the statement waited | again, a few times |

Every other error is permanent: of the statement, of its data, of the rights of the role. At the start of a worker
the first connection is made without waiting, so that a wrong password or database is reported at once.

Of SQLite the primary result codes: PERM, BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN and PROTOCOL are waited for.
"""

from __future__ import annotations

import sqlite3
from typing import Literal

Moment = Literal["wait", "again", "smaller", "changed"]

CLASSES: dict[str, Moment] = {"08": "wait", "28": "wait", "53": "wait", "58": "wait"}
STATES: dict[str, Moment] = {
    **dict.fromkeys(("25006", "25P03", "25P04", "55006", "55P03"), "wait"),
    **dict.fromkeys(("57P01", "57P02", "57P03", "57P04", "57P05"), "wait"),
    **dict.fromkeys(("40001", "40003", "40P01"), "again"),
    "57014": "smaller",
    **dict.fromkeys(("0A000", "3F000", "42703", "42704", "42883", "42P01", "XX000"), "changed"),
}  # fmt: skip
SQLITE_WAITS = frozenset(
    (
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL,
    )
)  # fmt: skip


def moment(sqlstate: str) -> Moment | None:
    """What to do about an error of PostgreSQL's; None: it does not pass by itself.

    >>> moment("25006"), moment("23505")
    ('wait', None)
    """
    return STATES.get(sqlstate) or CLASSES.get(sqlstate[:2])


def sqlite_waits(code: int) -> bool:
    """Whether an error of SQLite's passes by itself. The low byte of an extended code is the primary one."""
    return code & 0xFF in SQLITE_WAITS


def moment_of(error: BaseException) -> Moment | None:
    """The same for an exception, ours or a driver's: by the first in the chain of causes that has a state."""
    seen: BaseException | None = error
    for _ in range(5):
        if seen is None:
            return None
        if isinstance(state := getattr(seen, "sqlstate", None), str):
            return moment(state)
        seen = seen.__cause__
    return None
