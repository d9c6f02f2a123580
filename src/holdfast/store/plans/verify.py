"""All that is stored, read piece by piece to see whether it can be: by `holdfast doctor --deep`.

Each piece is one statement, so it is seen at one moment, however much is at work meanwhile. It has a limit in rows and
bytes, and the next one begins behind its last row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ..statement import Plan
from .engine import Plans, sql
from .engine_postgres import PostgresPlans

ROWS, BYTES = 1000, 8 * 1024 * 1024
FIRST = UUID(int=0)

Key = tuple[Any, ...]  # of the last row of a piece


@dataclass(frozen=True, slots=True)
class Stored:
    """A message or a dead letter: where it is, what cannot be about it, and its texts as they stand there."""

    number: int
    id: Any
    queue: str | None
    flaw: str | None
    headers: Any
    body: Any


@dataclass(frozen=True, slots=True)
class Held:
    """A lease, with what cannot be about it."""

    number: int
    id: Any
    queue: str | None
    flaw: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """A stream: what its row says, and what is in its order."""

    queue: str
    name: str
    open: int
    is_halted: bool
    last: int | None
    found: int
    lowest: int | None
    head: int | None
    highest: int | None


def messages(plans: Plans, after: Key) -> Plan[tuple[list[Stored], Key]]:
    """A piece of the messages, and the key that the next one begins behind."""
    (seq,) = after or (-1,)
    rows = yield sql(plans, "verify_messages", after=seq, limit=ROWS, bytes=BYTES)
    found = [Stored(*row) for row in rows]
    return found, (found[-1].number,) if found else after


def letters(plans: Plans, after: Key) -> Plan[tuple[list[Stored], Key]]:
    lowest = FIRST if isinstance(plans, PostgresPlans) else ""
    id, queue, seq = after or (lowest, "", -1)
    rows = yield sql(plans, "verify_letters", id=id, queue=queue, seq=seq, limit=ROWS, bytes=BYTES)
    found = [Stored(*row) for row in rows]
    return found, (found[-1].id, found[-1].queue, found[-1].number) if found else after


def leases(plans: Plans, after: Key) -> Plan[tuple[list[Held], Key]]:
    (seq,) = after or (-1,)
    rows = yield sql(plans, "verify_leases", after=seq, limit=ROWS)
    found = [Held(*row) for row in rows]
    return found, (found[-1].number,) if found else after


def streams(plans: Plans, after: Key) -> Plan[tuple[list[Order], Key]]:
    queue, name = after or ("", "")
    rows = yield sql(plans, "verify_streams", queue=queue, name=name, limit=ROWS)
    found = [Order(*row) for row in rows]
    return found, (found[-1].queue, found[-1].name) if found else after


def functions(plans: Plans) -> Plan[tuple[bool, list[str]]]:
    """Whether functions run with the rights of a superuser, and which everybody may call. SQLite has none."""
    if not isinstance(plans, PostgresPlans):
        return False, []
    ((is_super, open_to_all),) = yield plans.sql("verify_owner")
    return bool(is_super), list(open_to_all)
