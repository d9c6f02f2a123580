"""Messages that were late, and messages that are stuck: what an operator asks about lateness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ..errors import UsageError
from ..model.outage import Outage
from ..store.plans import outages, queries
from ..store.plans.operator import moment
from . import from_rows
from .desk import Desk
from .results import Delivery, Filter

OUTAGES_MAX = 1000


@dataclass(frozen=True, slots=True)
class EndedMessage:
    """A message that has ended. `lateness`: seconds between due and the start of its last attempt; None: never started.

    `outage` is the number of the outage in which it was handled, if it was due before somebody was back.
    """

    id: UUID
    queue: str
    type: str
    stream: str | None
    subject: str | None
    outcome: str
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime
    lateness: float | None
    attempts: int
    failures: int
    outage: int | None
    why: str | None


@dataclass(frozen=True, slots=True)
class StuckMessage:
    """A message that is pending although it was due long ago. `age`: seconds since then."""

    delivery: Delivery
    due_at: datetime
    age: float


def ended(
    desk: Desk, filter: Filter, *, late: float | None, since: datetime | None, limit: int
) -> list[EndedMessage]:
    """Messages that have ended: the newest first, or with `late` those that began later than that, the latest first."""
    for name in ("state", "reason", "id"):
        if getattr(filter, name) is not None:
            raise UsageError(f"Messages that have ended cannot be found by {name}: it is not kept with them.")
    if late is not None and not late >= 0:
        raise UsageError(f"late={late!r} must be a number of seconds that is not negative.")
    if since is not None and since.tzinfo is None:
        raise UsageError(f"since={since!r} must be a datetime with a time zone.")
    rows = desk.ask(
        queries.ended(
            queue=filter.queue, type=filter.type, stream=filter.stream, late=late, since=since, limit=limit
        )
    )
    known = desk.ask(outages.listed(OUTAGES_MAX)) if rows else []
    found = []
    for row in rows:
        seconds = row.pop("late")
        number = _outage_of(known, row["due_at"], row["started_at"])
        lateness = None if seconds is None else max(0.0, float(seconds))
        found.append(EndedMessage(**row, lateness=lateness, outage=number))
    return found


def _outage_of(known: Sequence[Outage], due: datetime, started: datetime | None) -> int | None:
    """The outage in which nobody handled it: it was due before somebody was back, and began after that."""
    for each in known:
        if started is None or each.back_at is None or not due < each.back_at <= started:
            continue
        if each.ended_at is None or started <= each.ended_at:
            return each.number
    return None


def stuck(desk: Desk, *, older: float, queue: str | None, limit: int) -> list[StuckMessage]:
    """Pending messages that were due longer ago than that and are not in hand, the oldest first."""
    if not older >= 0:
        raise UsageError(f"older={older!r} must be a number of seconds that is not negative.")
    now = desk.ask(moment())
    rows = desk.ask(queries.stuck(now - timedelta(seconds=older), now, queue, limit))
    found = []
    for each in (from_rows.delivery(row) for row in rows):
        if each.state != "leased":
            due = each.due_at or each.created_at
            found.append(StuckMessage(each, due, (now - due).total_seconds()))
    return found
