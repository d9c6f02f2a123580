"""What `why` reports about brokers: what was sent and confirmed, what waits for a connection, who sent a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..bodies.codec import Unreadable, decode_headers
from ..model.endpoint import Endpoint
from ..model.text import counted
from ..store.plans import endpoints
from ..store.plans.operator import moment
from ..transports.destination import INBOX, INBOX_ID, INBOX_SOURCE, Destination
from .desk import Desk
from .results import Ended, clock

ORDINALS = ("first", "second", "third", "fourth", "fifth")


def destination(desk: Desk, queue: str) -> Endpoint | None:
    """The destination that has this queue: of the application, or one that a worker has had."""
    for each in desk.handlers:
        if isinstance(each, Destination) and each.queue == queue:
            return each.endpoint
    for row in desk.ask(endpoints.known(queue)):
        if row["kind"] == "destination":
            return Endpoint("destination", queue, row["transport"], row["address"])
    return None


def sent(desk: Desk, each: Ended, at: datetime) -> str | None:
    """`sent to rabbitmq:orders at 12:03:04 UTC, confirmed in 4 ms, second attempt`; None: it was not sent."""
    if each.outcome != "done" or not each.queue or (to := destination(desk, each.queue)) is None:
        return None
    took = ""
    if each.started_at is not None:
        took = f", confirmed in {_short((each.ended_at - each.started_at).total_seconds())}"
    received = f" It was received as {each.origin}." if each.origin else ""
    when = clock(each.ended_at, at)
    return f"sent to {to.transport}:{to.queue} at {when}{took}, {_attempt(each.attempts)}.{received}"


def waits(desk: Desk, queue: str, error: str | None, at: datetime) -> list[str]:
    """Why messages in a destination's queue are not sent, if the cause is the connection."""
    to = destination(desk, queue)
    if to is None:
        return []
    rows = desk.ask(endpoints.connections(queue))
    now, lease = desk.ask(moment()), desk.settings.lease
    alive = [row for row in rows if (now - row["seen_at"]).total_seconds() <= lease]
    broken = [row for row in alive if row["state"] == "broken"]
    lines = [f"Its last try was not answered or failed: {error.rstrip('.')}."] if error else []
    if not broken:
        return lines
    first = min(broken, key=lambda row: row["since"])
    tried = f"tried {counted(max(row['tries'] for row in broken), 'time')}"
    because = f": {str(first['why']).rstrip('.')}" if first["why"] else ""
    if len(broken) == len(alive):
        return [
            f"No connection to {to.transport} since {clock(first['since'], at)}, {tried}{because}.",
            *lines,
        ]
    many = f"{len(broken)} of {len(alive)} workers have no connection to {to.transport}"
    return [
        f"{many}, the first since {clock(first['since'], at)}, {tried}{because}; the others send.",
        *lines,
    ]


def received(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which inbox a message came through, and its sender's id for it. Once, whatever the number of its deliveries."""
    for row in rows:
        try:
            headers = decode_headers(row["headers"])
        except (Unreadable, ValueError):
            continue
        if INBOX in headers:
            source, theirs = headers.get(INBOX_SOURCE, "an unknown source"), headers.get(INBOX_ID)
            known = f", as {theirs}" if theirs is not None else ", which gave it no id"
            return [f"It was received by inbox {headers[INBOX]} from {source}{known}."]
    return []


def _attempt(number: int) -> str:
    return f"{ORDINALS[number - 1]} attempt" if 1 <= number <= len(ORDINALS) else f"attempt {number}"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
