"""Messages that were late, and messages that are stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..errors import UsageError
from ..model.outage import Outage
from ..store.plans import outages, queries
from ..store.plans.operator import moment
from . import from_rows
from .desk import Desk
from .results import Delivery, EndedMessage, Filter

OUTAGES_MAX = 1000
SECONDS_MAX = 1_000_000_000  # about thirty years


@dataclass(frozen=True, slots=True)
class StuckMessage:
    """A message that is pending although it was due long ago. `age`: seconds since then."""

    delivery: Delivery
    due_at: datetime
    age: float


def ended(
    desk: Desk, filter: Filter, *, late: float | None, since: datetime | None, newest: bool, limit: int
) -> list[EndedMessage]:
    """Messages that have ended; with `late` those that began later than that, the latest first."""
    if filter.state is not None or filter.reason is not None:
        raise UsageError("Messages that have ended have neither a state nor a reason: leave them out.")
    if filter.subject is None and late is None and since is None:
        raise UsageError(
            "Messages that have ended are found by their subject (--subject), by how late they were (--late), or since "
            "a moment (--since); one by its id: `holdfast messages show ID`."
        )
    if late is not None:
        _checked_length("late", late)
    if since is not None and since.tzinfo is None:
        raise UsageError(f"since={since!r} must be a datetime with a time zone.")
    names = {name: getattr(filter, name) for name in ("subject", "queue", "type", "stream")}
    rows = desk.ask(queries.ended(newest=newest, limit=limit, late=late, since=since, **names))
    known = desk.ask(outages.listed(OUTAGES_MAX)) if rows else []
    found = []
    for each in map(from_rows.ended_message, rows):
        due, started = each.due_at, each.started_at
        lateness = None if started is None else max(0.0, (started - due).total_seconds())
        found.append(replace(each, lateness=lateness, outage=_outage_of(known, due, started)))
    return found


def _outage_of(known: Sequence[Outage], due: datetime, started: datetime | None) -> int | None:
    """The outage during which it was due: it was due before a worker was back, and began after that."""
    for each in known:
        if started is None or each.back_at is None or not due < each.back_at <= started:
            continue
        if each.ended_at is None or started <= each.ended_at:
            return each.number
    return None


def stuck(desk: Desk, *, older: float, queue: str | None, limit: int) -> list[StuckMessage]:
    """Pending messages that were due longer ago than that and are not leased, the oldest first."""
    _checked_length("older", older)
    now = desk.ask(moment())
    rows = desk.ask(queries.stuck(now - timedelta(seconds=older), now, queue, limit))
    found = []
    for each in (from_rows.delivery(row) for row in rows):
        if each.state != "leased":
            due = each.due_at or each.created_at
            found.append(StuckMessage(each, due, (now - due).total_seconds()))
    return found


def _checked_length(name: str, seconds: float) -> None:
    if not 0 <= seconds <= SECONDS_MAX:
        raise UsageError(f"{name}={seconds!r} must be a number of seconds, from 0 to {SECONDS_MAX:,}.")
