"""The message that a person means: its id may be given whole, by its last eight characters, or by its beginning.

Ids are ordered by time, so those of one minute begin alike. Their last characters are random, so tables show those.
Nothing extra is stored: the newest ids are read from an existing index (store/plans/ids.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from ..errors import NotFound, UsageError
from ..store.plans import ids
from ..store.plans.queries import Row
from ..store.statement import Plan
from .desk import Desk

SHORT = 8  # characters from the end
BEGINNING = 4  # characters at least
SHOWN = 10
PARTIAL = re.compile(r"[0-9a-fA-F-]+")
LISTS = {
    "message": "`holdfast messages list` and `holdfast dead list` show them",
    "request": "`holdfast requests list` shows them",
    "message or request": "`holdfast messages list`, `holdfast dead list` and `holdfast requests list` show them, "
    "`holdfast orchestrations list` shows instances",
}
DASHES = (12, 16, 20, 24)  # a dash comes before so many digits from the end


def named(
    desk: Desk, text: str, what: Literal["message", "request", "message or request"] = "message"
) -> UUID:
    """The id that is meant. Raises UsageError with the candidates if there are several, NotFound if there is none."""
    try:
        return UUID(text)
    except ValueError:
        pass
    digits = text.replace("-", "").lower()
    if not PARTIAL.fullmatch(text) or not BEGINNING <= len(digits) < 32:
        raise UsageError(
            f"{text!r} is not the id of a {what}: give all of it, its last {SHORT} characters, or an unambiguous "
            f"beginning. {LISTS[what]}."
        )
    rows = [
        row
        for row in desk.ask(_look(digits))
        if ("request" if row["what"] == "request" else "message") in what
    ]
    found: set[UUID] = {row["id"] for row in rows}
    if len(found) == 1:
        return next(iter(found))
    if found:
        raise _several(text, rows)
    raise NotFound(
        f"No {what} has an id that begins with {text}"
        + (f", and none of the newest {ids.NEWEST:,} ends with it" if len(digits) >= SHORT else "")
        + f": give the whole id, or look with `holdfast {what.partition(' ')[0]}s list`."
    )


def _look(digits: str) -> Plan[list[Row]]:
    rows = yield from ids.begins(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")))
    known = {row["id"] for row in rows}
    # Eight characters may be the beginning or the end. Longer beginnings of an id are not searched as endings.
    if len(digits) == SHORT or (len(digits) > SHORT and not rows):
        for id in sorted((yield from ids.ends(tail(digits))) - known):
            rows += yield from ids.begins(id, id)
    return rows


def tail(digits: str) -> str:
    """The last digits of an id as they are written, with its dashes."""
    text = ""
    for behind, digit in enumerate(reversed(digits)):
        text = digit + ("-" if behind in DASHES else "") + text
    return text


def _several(text: str, rows: Sequence[Row]) -> UsageError:
    """An error with the candidates as its details, the newest first."""
    candidates: dict[UUID, str] = {}
    for row in sorted(rows, key=lambda row: row["created_at"], reverse=True):
        candidates.setdefault(row["id"], _candidate(row))
    error = UsageError(f"{len(candidates)} messages have an id like {text}: give more of it.")
    more = (f"and {len(candidates) - SHOWN} more",) if len(candidates) > SHOWN else ()
    error.details = (*list(candidates.values())[:SHOWN], *more)
    return error


def _candidate(row: Row) -> str:
    at: datetime = row["created_at"]
    where = f" in {row['queue']}" if row["queue"] else ""
    return f"{row['id']}  {at:%Y-%m-%d %H:%M:%S}  {row['what']}{where}, {row['type']}"
