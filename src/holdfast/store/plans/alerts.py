"""Alerts in the store, for both databases: the measures, the episodes that are not over, and the news to send.

A decision and its news are one transaction, in which every change is a compare and swap: if several processes
decide the same, one of them stores it. Sending comes afterwards: a process takes news for a while, and if it dies,
another process takes it after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...model.alert import AlertChanged, AlertOver, AlertRaised, Episode, Verdict
from ..statement import Plan, single, statements
from ..values import as_id, instant
from .operator import ago, moment
from .queries import Row, shape

sql = statements("alerts")

COUNT_MAX = 10_001  # beyond this an exact count is not needed
QUEUES_MAX = 1000
NEWS = "number episode name subject what at since value threshold text details tries told"
DecideEpisodes = Callable[[list[Episode], datetime], Iterable[Verdict]]


# -- measuring


def dead(seconds: float) -> Plan[list[tuple[str, int, int]]]:
    """Deaths within so many seconds: queue, last reason, count."""
    since = yield from ago(seconds)
    rows = yield sql("alert_dead", since=since, limit=COUNT_MAX)
    return [(queue, reason, int(count)) for queue, reason, count in rows]


def began_late(late: float, seconds: float) -> Plan[tuple[int, float]]:
    """How many of those that ended within so many seconds had begun late, and how late at most."""
    since = yield from ago(seconds)
    ((count, most),) = yield sql("alert_began_late", late=late, since=since, limit=COUNT_MAX)
    return int(count), float(most or 0.0)


def backlog(late: float) -> Plan[list[tuple[str, bool, UUID, datetime, int]]]:
    """By queue: is it paused, which message waits longest and since when, how many wait longer than `late`."""
    before = yield from ago(late)
    rows = yield sql("alert_backlog", before=before, limit=COUNT_MAX, queues=QUEUES_MAX)
    found = {
        queue: (bool(paused), as_id(id), instant(since), int(count))
        for queue, paused, id, since, count in rows
    }
    # Due messages that were not brought over yet wait, too.
    for queue, paused, id, since, count in (yield sql("alert_scheduled", before=before, limit=COUNT_MAX)):
        one = bool(paused), as_id(id), instant(since), int(count)
        other = found.get(queue)
        if other is None:
            found[queue] = one
        else:
            oldest = min(one, other, key=lambda each: each[2])
            found[queue] = (*oldest[:3], one[3] + other[3])
    return sorted(((queue, *row) for queue, row in found.items()), key=lambda row: row[3])


@single
def last_seen() -> Plan[datetime | None]:
    """When any worker was last seen."""
    ((seen,),) = yield sql("alert_silent")
    at: datetime | None = instant(seen)
    return at


def blocked(seconds: float, few: int) -> Plan[list[Row]]:
    """Streams that have been blocked for longer than that; of each queue the first few, and how many there are."""
    before = yield from ago(seconds)
    rows = yield sql("alert_blocked", before=before, few=few, limit=COUNT_MAX)
    found = shape("queue stream since open head_id halted_by count", rows)
    return [{**row, "since": instant(row["since"])} for row in found]


@single
def poison(attempts: int, few: int) -> Plan[list[Row]]:
    rows = yield sql("alert_poison", attempts=attempts, few=few)
    return shape("count id queue type attempts", rows)


# -- deciding


@single
def episodes() -> Plan[list[Episode]]:
    """Episodes that are not over."""
    return [
        Episode(name, subject, instant(since), value, peak, instant(calm), number, version)
        for name, subject, version, number, since, calm, value, peak in (yield sql("alert_episodes"))
    ]


def decide(judge: DecideEpisodes) -> Plan[list[AlertRaised | AlertOver]]:
    """Store what `judge` decides about the episodes, unless another process was faster. Returns the news to send."""
    now = yield from moment()
    news: list[AlertRaised | AlertOver] = []
    for verdict in judge((yield from episodes()), now):
        match verdict:
            case AlertRaised():
                if (yield from _begin(verdict)):
                    news.append(verdict)
            case AlertOver():
                if (yield from _end(verdict, now)):
                    news.append(verdict)
            case AlertChanged(before, after):
                yield sql(
                    "alert_change",
                    **_key(before),
                    value=after.value,
                    peak=after.peak,
                    calm_since=after.calm_since,
                )
    return news


def _begin(verdict: AlertRaised) -> Plan[bool]:
    each = verdict.episode
    since = each.since
    values = {"name": each.name, "subject": each.subject, "since": since, "value": each.value}
    if not (yield sql("alert_begin", **values, peak=each.peak)):
        return False
    ((number,),) = yield sql(
        "alert_news",
        **values,
        what="raised",
        episode=None,
        at=since,
        threshold=verdict.threshold,
        text=verdict.text,
        details=_json(verdict.details),
    )
    yield sql("alert_number", name=each.name, subject=each.subject, number=number)
    return True


def _end(verdict: AlertOver, now: datetime) -> Plan[bool]:
    each = verdict.episode
    if not (yield sql("alert_end", **_key(each))):
        return False
    yield sql(
        "alert_news",
        name=each.name,
        subject=each.subject,
        what="over",
        episode=each.number,
        at=now,
        since=each.since,
        value=verdict.value,
        threshold=verdict.threshold,
        text=verdict.text,
        details=_json({"peak": each.peak}),
    )
    return True


def _key(each: Episode) -> dict[str, object]:
    return {"name": each.name, "subject": each.subject, "version": each.version, "number": each.number}


# -- sending


def take(seconds: float) -> Plan[Row | None]:
    """Take the oldest news to send, for so many seconds; None: there is none."""
    until = yield from ago(-seconds)
    rows = yield sql("alert_take", until=until)
    return _news(NEWS, rows)[0] if rows else None


def sent(number: int, tries: int, sinks: list[str], error: str | None, pause: float | None) -> Plan[bool]:
    """Store which sinks have the news. `pause`: seconds until it is tried again; None: it needs no more sending."""
    until = yield from ago(-(pause or 0.0))
    rows = yield sql(
        "alert_sent",
        number=number,
        tries=tries,
        told=_json(sinks),
        error=error,
        until=until,
        ended=until if pause is None else None,
    )
    return bool(rows)


@single
def news(limit: int) -> Plan[list[Row]]:
    """The newest news, and its delivery."""
    rows = yield sql("alert_list", limit=limit)
    return _news(f"{NEWS} try_at ended_at error", rows)


def _news(names: str, rows: list[tuple[Any, ...]]) -> list[Row]:
    return [
        {
            **row,
            "at": instant(row["at"]),
            "since": instant(row["since"]),
            "details": msgspec.json.decode(row["details"]),
            "told": msgspec.json.decode(row["told"]),
        }
        for row in shape(names, rows)
    ]


# -- turns


def take_turn(name: str, seconds: float) -> Plan[bool]:
    """Whether it is the caller's turn to do this for all processes; the next turn comes in so many seconds."""
    until = yield from ago(-seconds)
    return bool((yield sql("turn_take", name=name, until=until)))


def put_off(name: str, seconds: float) -> Plan[None]:
    """Delay the next turn: it comes in so many seconds at the earliest."""
    until = yield from ago(-seconds)
    yield sql("turn_put_off", name=name, until=until)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
