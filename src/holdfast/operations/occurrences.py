"""What became of one occurrence of a schedule: its message, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ..errors import HoldfastError, UsageError
from ..model.schedule import Stored
from ..rules.timeline import Occurrence, Timeline, is_key, occurrence_id
from ..schedules.setting import timeline_of
from ..store.plans import queries
from .desk import Desk
from .explain import why
from .results import clock


def check(name: str, key: str) -> None:
    """Refuse what cannot be the key of an occurrence."""
    if not is_key(key):
        raise UsageError(
            f"Nothing was looked up: {key!r} is not the key of an occurrence of schedule {name!r}. Write 2026-03-29, "
            f"2026-03-29T02:30:00 or 2026-03-29T00:30:00Z; `holdfast schedules next {name}` shows some."
        )


def message_of(desk: Desk, row: Stored, key: str) -> Sequence[str]:
    """The message of an occurrence and where it is; nothing if there is none or it is no longer known."""
    id = UUID(occurrence_id(row.incarnation.bytes, key))
    return [f"Occurrence {key} is message {id}.", *why(desk, id)] if any(desk.ask(queries.show(id))) else []


def fate(row: Stored, key: str) -> str:
    """Why an occurrence has no message, if no note says that it was left out."""
    try:
        timeline = timeline_of(row)
    except HoldfastError:  # a rule of a later release: the schedule shows its error
        return _unknown(row, key)
    found = timeline.from_key(key)
    if found is None or found.key != key:
        return f"Its rule has no occurrence {key}{_nearest(timeline, found)}."
    fell = f"Occurrence {key} fell due at {clock(found.due, row.now)}"
    if found.due > row.now:
        if row.last_key is not None and key <= row.last_key:
            return _unknown(row, key)
        return f"Occurrence {key} has not come yet: it falls due at {clock(found.due, row.now)}."
    if row.next_key is not None and key >= row.next_key:
        return f"{fell} and has not been fired."
    if found.due <= row.created_at:
        return f"{fell}, before the schedule was set at {clock(row.created_at, row.now)}."
    if row.last_key is None or key > row.last_key:
        return (
            f"{fell}, and the schedule was not waiting for it: what it waits for was decided when it was set or "
            f"changed at {clock(row.changed_at, row.now)}."
        )
    return _unknown(row, key)


def _nearest(timeline: Timeline, behind: Occurrence | None) -> str:
    before = None if behind is None else timeline.previous(behind.at)
    near = [each.key for each in (before, behind) if each is not None]
    return (
        f"; the nearest are {' and '.join(near)}"
        if len(near) == 2
        else f"; the nearest is {near[0]}"
        if near
        else ""
    )


def _unknown(row: Stored, key: str) -> str:
    id = occurrence_id(row.incarnation.bytes, key)
    return f"Occurrence {key}: no message {id} is known any more, and no note says that it was left out."
