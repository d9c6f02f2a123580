"""Ids that publishers give: unique in a queue among what is pending, scheduled, unrouted or dead.

They are looked up before anything is stored. A message that is stored in between violates the unique index, and
each driver reports that in its own way. Ids that the engine makes are not looked up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ..errors import IdTaken
from ..model.message import NewMessage
from ..model.names import SCOPED
from .statement import Plan, single, statements
from .text import DEFAULT_SCHEMA
from .values import as_id

sql = statements("given")

SQLITE_TAKEN = tuple(
    f"UNIQUE constraint failed: holdfast_{table}.id, holdfast_{table}.queue"
    for table in ("message", "scheduled")
)
POSTGRES_TAKEN = (("message", "message_id"), ("scheduled", "scheduled_id"))
UNIQUE_VIOLATION = "23505"
KEY = re.compile(r"\(id, queue[^)]*\)=\(([0-9a-f-]{36}), (.*)\)")
CAUSES_MAX = 5  # SQLAlchemy and Django wrap the driver's error


def given(messages: Sequence[NewMessage]) -> list[NewMessage]:
    """Those whose id was given by the publisher."""
    return [message for message in messages if message.id_is_given]


def refuse_twice(messages: Sequence[NewMessage]) -> None:
    """Refuse one id for two messages of one call that may enter one queue. A duplicate by dedupe key is allowed."""
    seen: dict[UUID, list[NewMessage]] = {}
    for each in messages:
        for other in seen.setdefault(each.id, []):
            same = each.dedupe is not None and _key(each) == _key(other)
            meets = each.type == other.type or (each.queue is not None and each.queue == other.queue)
            if meets and not same:
                raise IdTaken(each.id, each.queue, "given")
        seen[each.id].append(each)


def _key(message: NewMessage) -> tuple[str, str | None]:
    scoped = message.dedupe is not None and message.dedupe.startswith(SCOPED)
    return "" if scoped else message.type, message.dedupe


@single
def look_up(messages: Sequence[NewMessage], ending: Sequence[int] = ()) -> Plan[None]:
    """Raise IdTaken if another message has one of these ids. `ending`: messages that end in the same transaction."""
    if len({message.id for message in messages}) < len(messages):
        refuse_twice(messages)
    rows = yield sql(
        "ids_taken",
        ids=[message.id for message in messages],
        types=[message.type for message in messages],
        queues=[message.queue for message in messages],
        keys=[message.dedupe for message in messages],
        ending=list(ending),
    )
    if rows:
        id, queue, state, number = rows[0]
        raise IdTaken(as_id(id), queue, state, number)


def taken(error: BaseException, schema: str | None = None) -> tuple[UUID | None, str | None] | None:
    """Whether an error says that an id is pending in a queue, and which; never one about another table or index."""
    if isinstance(error, IdTaken):
        return None
    seen: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if seen is None:
            return None
        if any(each in str(seen) for each in SQLITE_TAKEN):
            return None, None
        code = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if code == UNIQUE_VIOLATION:
            diagnosis: Any = getattr(seen, "diag", None) or seen
            names = tuple(getattr(diagnosis, f"{name}_name", None) for name in ("table", "constraint"))
            ours = schema in (None, getattr(diagnosis, "schema_name", None))
            if ours and names in POSTGRES_TAKEN:
                detail = (
                    getattr(diagnosis, "message_detail", None) or getattr(diagnosis, "detail", None) or ""
                )
                found = KEY.search(detail)
                return (UUID(found[1]), found[2]) if found else (None, None)
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def raise_if_taken(error: Exception, messages: Sequence[NewMessage], schema: str = DEFAULT_SCHEMA) -> None:
    """Raise IdTaken instead of an error that is about the id of one of these messages."""
    found = taken(error, schema) if messages else None
    if found is None:
        return
    id, queue = found
    ids = Counter(message.id for message in messages)
    if id is None:  # the driver does not say which: one that was given twice, or the only one
        ((id, _),) = ids.most_common(1)
    if id in ids:
        raise IdTaken(id, queue, "stored") from error
