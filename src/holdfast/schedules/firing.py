"""The messages of occurrences: their ids, their headers, their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec

from ..bodies.keys import Keys
from ..model.schedule import AT, KEY, LOCAL, SCHEDULE, Fired, Stored
from ..rules.timeline import Occurrence, Timeline, occurrence_id

TRIGGER = "trigger"  # the key of what an operator or a call has triggered


# The local time and the moment as headers, by zone and moment: what many schedules of one tick have in common.
Texts: TypeAlias = dict[tuple[str, datetime], tuple[str, str]]


def messages(
    row: Stored,
    timeline: Timeline,
    fires: Sequence[Occurrence],
    keys: Keys | None,
    texts: Texts | None = None,
) -> tuple[Fired, ...]:
    """The messages of these occurrences of a schedule."""
    if not fires:
        return ()
    body = row.body if keys is None else keys.open(row.incarnation, row.type, row.body)
    texts = {} if texts is None else texts
    return tuple(
        _message(row, timeline, each, occurrence_id(row.incarnation, each.key), body, keys, texts)
        for each in fires
    )


def triggered(row: Stored, timeline: Timeline, id: UUID, keys: Keys | None) -> Fired:
    """One more, now, with an id of its own."""
    body = row.body if keys is None else keys.open(row.incarnation, row.type, row.body)
    return _message(row, timeline, Occurrence(TRIGGER, row.now, row.now), id, body, keys, {})


def _message(
    row: Stored,
    timeline: Timeline,
    each: Occurrence,
    id: UUID,
    body: str,
    keys: Keys | None,
    texts: Texts,
) -> Fired:
    if (shown := texts.get((timeline.rule.zone, each.at))) is None:
        local = f"{timeline.local(each.at):%Y-%m-%d %H:%M} {timeline.rule.zone}"
        shown = texts[timeline.rule.zone, each.at] = (local, each.at.isoformat())
    own = msgspec.json.decode(row.headers) if row.headers else {}
    headers = {
        **own,
        SCHEDULE: row.name,
        KEY: each.key,
        LOCAL: shown[0],
        AT: shown[1],
    }
    return Fired(
        id=id,
        type=row.type,
        body=body if keys is None else keys.seal(id, row.type, body),
        stream=row.stream,
        subject=row.subject,
        headers=msgspec.json.encode(headers).decode(),
        due=each.due,
        queue=row.queue,
        name=row.name,
        key=each.key,
    )
