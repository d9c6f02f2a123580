"""Moves and cancels scheduled messages, until they fall due: in a transaction of their own or in the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ...errors import NotFound, Refused
from ..statement import Plan, Verb, statements
from ..values import instant
from . import operator, scheduled
from .operator import moment

sql = statements("moving")


def move(id: UUID, at: datetime | None, delay: float | None) -> Plan[datetime]:
    """Give a scheduled message another time; returns it. All its deliveries move, or none."""
    seqs, now = yield from _scheduled(id)
    due = at if at is not None else now + timedelta(seconds=delay or 0.0)
    yield sql("move_due", seqs=list(seqs), due=due)
    yield from scheduled.put_by(seqs, now)
    yield Verb("schedules", "wake")
    return due


def cancel(id: UUID) -> Plan[None]:
    """End a scheduled message as cancelled. All its deliveries end, or none."""
    seqs, _ = yield from _scheduled(id)
    yield from operator.end(list(seqs), "cancelled")


def _scheduled(id: UUID) -> Plan[tuple[Sequence[int], datetime]]:
    """Lock the deliveries of a message that is not due yet; or raise Refused or NotFound with its state."""
    yield from scheduled.recall_ids([id])
    rows = yield sql("move_lock", id=str(id))
    now = yield from moment()
    if not rows:
        raise NotFound(
            f"No message {id} is scheduled: it has fallen due and ended, or never was. `holdfast why {id}` says which."
        )
    seqs = [seq for seq, *_ in rows]
    # In a statement of its own: a worker that has claimed it did so before it was locked.
    leased = yield sql("move_leased", seqs=list(seqs))
    if leased:
        raise Refused(f"Message {id} has been handed out to a worker, so it is not scheduled any more.")
    for _, queue, claimable_at, tried, is_parked, is_placed in rows:
        where = f" in queue {queue}" if queue is not None and not queue.startswith("holdfast/") else ""
        if is_parked:
            raise Refused(f"Message {id} is parked{where}: `holdfast messages retry {id}` brings it back.")
        if tried:
            raise Refused(f"Message {id} has been tried{where}, so it is not scheduled any more.")
        if is_placed or instant(claimable_at) <= now:
            raise Refused(f"Message {id} has fallen due{where}, so it is not scheduled any more.")
    return seqs, now
