"""Seals bodies again, in small batches. Only the text of the body changes: no leases, no order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from ..statement import Plan, single, statements
from ..values import BEGINNING, as_id

sql = statements("keys")

NOBODY = str(UUID(int=0))
# The name it is bound to (the id of a message, a name), type, stored text -> other text; None: it does not open.
Seal = Callable[[UUID | str, str, str], str | None]


class Bodies(NamedTuple):
    """A table with bodies: the statements that read and write them, and a place before the first."""

    read: str
    write: str
    start: tuple[Any, ...]
    of_messages: bool = True  # False: texts that are stored beside messages, bound to a name


TABLES = {
    "message": Bodies("keys_next_message", "keys_set_message", (0,)),
    "scheduled": Bodies("keys_next_scheduled", "keys_set_scheduled", (0,)),
    "dead": Bodies("keys_next_dead", "keys_set_dead", (NOBODY, "", 0)),
    "death": Bodies("keys_next_death", "keys_set_death", (NOBODY, "", None, 0)),
    "event": Bodies("keys_next_event", "keys_set_event", ("", 0)),
    "journal": Bodies("keys_next_journal", "keys_set_journal", ("", 0, 0, 0), of_messages=False),
    "result": Bodies("keys_next_result", "keys_set_result", ("",), of_messages=False),
    "status": Bodies("keys_next_status", "keys_set_status", ("",), of_messages=False),
    "schedule": Bodies("keys_next_schedule", "keys_set_schedule", ("",)),
    "request": Bodies("keys_next_request", "keys_set_request", (NOBODY,)),
    "request_result": Bodies("keys_next_request_result", "keys_set_request_result", (NOBODY,)),
}


class Resealed(NamedTuple):
    """The result of a batch. `place`: where to continue; None: there was nothing more."""

    place: tuple[Any, ...] | None
    changed: int
    unopened: int


def reseal(
    bodies: Bodies, after: tuple[Any, ...], marks: dict[str, str], plain: bool, limit: int, seal: Seal
) -> Plan[Resealed]:
    """One batch after a place, in one transaction."""
    rows = yield sql(bodies.read, **_named(after), **marks, plain=plain, limit=limit)
    changed, unopened, width = 0, 0, len(bodies.start)
    for row in rows:
        id, type_, old = row[width:]
        new = seal(as_id(id) if bodies.of_messages else id, type_, old)
        if new is None:
            unopened += 1
        else:
            yield sql(bodies.write, **_named(row[:width]), new=new, old=old)
            changed += 1
    return Resealed(tuple(rows[-1][:width]) if rows else None, changed, unopened)


def _named(place: tuple[Any, ...]) -> dict[str, Any]:
    values = (BEGINNING if each is None else each for each in place)
    return dict(zip("abcd", values, strict=False))


@single
def counts(sealed: str) -> Plan[list[tuple[str, str | None, int]]]:
    """Which table has how many bodies that are sealed with which key."""
    rows = yield sql("keys_counts", sealed=sealed)
    return [(place, key, int(count)) for place, key, count in rows]
