"""Reads everything that is stored, in parts, to find impossible states: for `holdfast doctor --deep`.

Each part is one statement, so it is a consistent snapshot while workers continue. It has a limit in rows and
bytes, and the next one begins after its last row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ..statement import Plan, single, statements

sql = statements("verify")

ROWS, BYTES = 1000, 8 * 1024 * 1024
FIRST = UUID(int=0)

Key = tuple[Any, ...]  # of the last row of a part


@dataclass(frozen=True, slots=True)
class Stored:
    """A message or a dead letter: its queue, what is wrong with it, and its texts as they are stored."""

    number: int
    id: Any
    queue: str | None
    flaw: str | None
    headers: Any
    body: Any


@dataclass(frozen=True, slots=True)
class Held:
    """A lease, and what is wrong with it."""

    number: int
    id: Any
    queue: str | None
    flaw: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """A stream: the counts of its row, and of its order."""

    queue: str
    name: str
    open: int
    is_halted: bool
    last: int | None
    found: int
    lowest: int | None
    head: int | None
    highest: int | None


@single
def messages(after: Key) -> Plan[tuple[list[Stored], Key]]:
    """A part of the messages, and the key after which the next part begins."""
    (seq,) = after or (-1,)
    rows = yield sql("verify_messages", after=seq, limit=ROWS, bytes=BYTES)
    found = [Stored(*row) for row in rows]
    return found, (found[-1].number,) if found else after


@single
def letters(after: Key) -> Plan[tuple[list[Stored], Key]]:
    id, queue, seq = after or (FIRST, "", -1)
    rows = yield sql("verify_letters", id=id, queue=queue, seq=seq, limit=ROWS, bytes=BYTES)
    found = [Stored(*row) for row in rows]
    return found, (found[-1].id, found[-1].queue, found[-1].number) if found else after


@single
def leases(after: Key) -> Plan[tuple[list[Held], Key]]:
    (seq,) = after or (-1,)
    rows = yield sql("verify_leases", after=seq, limit=ROWS)
    found = [Held(*row) for row in rows]
    return found, (found[-1].number,) if found else after


@single
def streams(after: Key) -> Plan[tuple[list[Order], Key]]:
    queue, name = after or ("", "")
    rows = yield sql("verify_streams", queue=queue, name=name, limit=ROWS)
    found = [Order(*row) for row in rows]
    return found, (found[-1].queue, found[-1].name) if found else after


@single
def functions() -> Plan[tuple[bool, list[str]]]:
    """Whether functions run with the rights of a superuser, and which ones PUBLIC may call. SQLite has no functions."""
    rows = yield sql("verify_owner")
    return (bool(rows[0][0]), list(rows[0][1])) if rows else (False, [])
