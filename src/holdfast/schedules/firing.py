"""The messages of occurrences: their ids, their headers, their bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

import msgspec

from ..bodies.keys import Keys
from ..model.schedule import AT, KEY, LOCAL, SCHEDULE, Due, Fired, Stored
from ..rules.timeline import Occurrence, Timeline, occurrence_id

TRIGGER = "trigger"  # the key of what an operator or a call has triggered

_json = msgspec.json.Encoder()


class Labelled(NamedTuple):
    """An occurrence, and what its message says of it in its headers: the same for all schedules that have it."""

    occurrence: Occurrence
    headers: str  # a JSON object without its opening brace


def labelled(timeline: Timeline, occurrence: Occurrence) -> Labelled:
    local = f"{timeline.local(occurrence.at).isoformat(' ', 'minutes')} {timeline.rule.zone}"
    headers = {KEY: occurrence.key, LOCAL: local, AT: occurrence.at.isoformat()}
    return Labelled(occurrence, _json.encode(headers).decode()[1:])


def messages(row: Due | Stored, occurrences: Iterable[Labelled], keys: Keys | None) -> tuple[Fired, ...]:
    """The messages of these occurrences of a schedule."""
    incarnation = row.incarnation if isinstance(row, Due) else row.incarnation.bytes
    body = row.body if keys is None else _opened(row, keys)
    return tuple(
        [
            _message(row, each, occurrence_id(incarnation, each.occurrence.key), body, keys)
            for each in occurrences
        ]
    )


def triggered(row: Stored, timeline: Timeline, id: UUID, keys: Keys | None) -> Fired:
    """One more, now, with an id of its own."""
    body = row.body if keys is None else _opened(row, keys)
    return _message(row, labelled(timeline, Occurrence(TRIGGER, row.now, row.now)), str(id), body, keys)


def _opened(row: Due | Stored, keys: Keys) -> str:
    incarnation = UUID(bytes=row.incarnation) if isinstance(row, Due) else row.incarnation
    return keys.open(incarnation, row.type, row.body)


def _message(row: Due | Stored, occurrence: Labelled, id: str, body: str, keys: Keys | None) -> Fired:
    headers = f'{{"{SCHEDULE}":{_json.encode(row.name).decode()},{occurrence.headers}'
    if row.headers:
        both = {**msgspec.json.decode(row.headers), **msgspec.json.decode(headers)}
        headers = _json.encode(both).decode()
    if keys is not None:
        body = keys.seal(UUID(id), row.type, body)
    at = occurrence.occurrence
    return Fired(id, row.type, body, row.stream, row.subject, headers, at.due, row.queue, row.name, at.key)
