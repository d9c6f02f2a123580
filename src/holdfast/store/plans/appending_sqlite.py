"""New messages on SQLite: their dedupe keys, their rows, their places in streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...clock import micros
from ...errors import VersionConflict
from ...model.message import NewMessage, Published
from ...model.names import SCOPED
from ..statement import Plan, statements
from ..values import encode
from .scheduled_sqlite import is_later, store_later

PLAIN_MIN = 8  # messages: for fewer, asking for their queues first costs more than it saves

sql = statements("engine")


def append(messages: Sequence[NewMessage], now: int) -> Plan[list[Published]]:
    taken = yield from _duplicates(messages)
    fresh = [message for n, message in enumerate(messages) if n not in taken] if taken else messages
    if len(fresh) < PLAIN_MIN or not all(map(is_plain, fresh)) or len({each.type for each in fresh}) > 1:
        yield from _append_any([_draft(message, now) for message in fresh], now)
    else:
        yield from _append_plain(fresh)
        if any(message.stream is not None for message in fresh):
            yield from place()
    published = []
    for n, message in enumerate(messages):
        if n in taken:
            published.append(Published(taken[n], duplicate=True))
        else:
            if message.event:
                yield from _append_event(message, now)
            published.append(Published(message.id))
    return published


def _append_any(rows: Sequence[dict[str, Any]], now: int) -> Plan[None]:
    later = [row for row in rows if row["due"] is not None and is_later(row, now)]
    if later:
        yield from store_later(later)
        rows = [row for row in rows if row["due"] is None or not is_later(row, now)]
    if rows:
        yield sql("append", messages=encode(rows))
    if any(row["stream"] is not None for row in rows):
        yield from place()


def _append_plain(messages: Sequence[NewMessage]) -> Plan[None]:
    """The same as `append`, for three quarters of its cost: all have one type, so its queues are asked once."""
    type = messages[0].type
    rows = encode([(m.id, m.body, m.stream, m.subject, m.headers, m.dedupe) for m in messages])
    routes = yield sql("append_routes", type=type)
    for queue, ordered in routes or [(None, True)]:  # without a subscriber they are kept until there is one
        yield sql("append_plain", type=type, queue=queue, ordered=bool(ordered), messages=rows)


def _append_event(message: NewMessage, now: int) -> Plan[int]:
    assert message.stream is not None
    rows = yield sql("event_version", stream=message.stream)
    reached = rows[0][0] if rows else 0
    if message.expect is not None and message.expect != reached:
        raise VersionConflict(message.stream, message.expect, reached)
    version = int(reached) + 1
    yield sql("event_bump", stream=message.stream, version=version)
    yield sql(
        "event_insert",
        stream=message.stream,
        version=version,
        id=str(message.id),
        type=message.type,
        subject=message.subject,
        headers=message.headers,
        body=message.body,
    )
    return version


def _duplicates(messages: Sequence[NewMessage]) -> Plan[dict[int, UUID]]:
    """Take the dedupe keys. Returns which messages are duplicates, and of which message."""
    keys = [
        (n, "" if m.dedupe.startswith(SCOPED) else m.type, m.dedupe, m.id, m.kept)
        for n, m in enumerate(messages)
        if m.dedupe is not None
    ]
    if not keys:
        return {}
    given = encode(keys)
    fresh = set((yield sql("dedupe_take", keys=given)))
    if len(fresh) == len(keys):
        return {}
    late: dict[int, UUID] = {}
    for n, scope, key, holder in (yield sql("dedupe_holders", keys=given)):
        if (scope, key) in fresh:
            # It was taken; another one with that key in the same call is a duplicate.
            fresh.remove((scope, key))
        else:
            late[n] = UUID(holder)
    return late


def place() -> Plan[None]:
    """Messages that were just stored enter the order of their streams."""
    yield sql("place_streams")
    heads = yield sql("place_heads")
    yield sql("place_messages", heads=encode([seq for (seq,) in heads]))


def is_plain(message: NewMessage) -> bool:
    """Whether it goes to all subscribers of its type, now."""
    return not (
        message.queue is not None
        or message.due_at is not None
        or message.delay is not None
        or message.deadline is not None
        or message.event
    )


def _draft(message: NewMessage, now: int) -> dict[str, Any]:
    due = None if message.due_at is None else micros(message.due_at)
    if due is None and message.delay is not None:
        due = now + round(message.delay * 1_000_000)
    return {
        "id": str(message.id),
        "type": message.type,
        "body": message.body,
        "stream": message.stream,
        "subject": message.subject,
        "headers": message.headers,
        "dedupe": message.dedupe,
        "due": due,
        "deadline": None if message.deadline is None else micros(message.deadline),
        "queue": message.queue,
        "status": 3 if message.event else 1,
        "kept": message.kept,
    }
