"""Alerts in the store, for both databases: what is measured, the episodes that are not over, and the news to be told.

A decision and the news of it are one transaction, in which every change is a compare and swap: of several processes
that decide the same, one does it. Telling comes afterwards: whoever takes news has it for a while, and if he dies
somebody else takes it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...clock import micros
from ...model.alert import Changed, Episode, Over, Raised, Verdict
from ..statement import Plan
from .engine import Plans, sql
from .engine_postgres import PostgresPlans
from .operator import ago, as_id, at
from .queries import Row, shape

COUNT_MAX = 10_001  # nobody needs to know exactly how many more there are
QUEUES_MAX = 1000
NEWS = "number episode name subject what at since value threshold text details tries told"
Decide = Callable[[list[Episode], datetime], Iterable[Verdict]]


# -- measuring


def dead(plans: Plans, seconds: float, now: Any) -> Plan[list[tuple[str, int, int]]]:
    """Deaths within so many seconds: queue, last reason, count."""
    since = yield from ago(plans, seconds, now)
    rows = yield sql(plans, "alert_dead", since=since, limit=COUNT_MAX)
    return [(queue, reason, int(count)) for queue, reason, count in rows]


def began_late(plans: Plans, late: float, seconds: float, now: Any) -> Plan[tuple[int, float]]:
    """How many of those that ended within so many seconds had begun late, and how late at most."""
    since = yield from ago(plans, seconds, now)
    ((count, most),) = yield sql(plans, "alert_began_late", late=late, since=since, limit=COUNT_MAX)
    return int(count), float(most or 0.0)


def backlog(plans: Plans, late: float, now: Any) -> Plan[list[tuple[str, bool, UUID, datetime, int]]]:
    """By queue: is it paused, which message waits longest and since when, how many wait longer than `late`."""
    before = yield from ago(plans, late, now)
    rows = yield sql(plans, "alert_backlog", before=before, limit=COUNT_MAX, queues=QUEUES_MAX, now=now)
    return [
        (queue, bool(paused), as_id(id), plans.moment(since), int(count))
        for queue, paused, id, since, count in rows
    ]


def last_seen(plans: Plans) -> Plan[datetime | None]:
    """When any worker was last seen."""
    ((seen,),) = yield sql(plans, "alert_silent")
    return at(plans, seen)


def blocked(plans: Plans, seconds: float, few: int, now: Any) -> Plan[list[Row]]:
    """Streams that have stood still for longer than that; of each queue the first few, and how many there are."""
    before = yield from ago(plans, seconds, now)
    rows = yield sql(plans, "alert_blocked", before=before, few=few, limit=COUNT_MAX, now=now)
    found = shape(plans, "queue stream since open head_id halted_by count", rows)
    return [{**row, "since": at(plans, row["since"])} for row in found]


def poison(plans: Plans, attempts: int, few: int) -> Plan[list[Row]]:
    rows = yield sql(plans, "alert_poison", attempts=attempts, few=few)
    return shape(plans, "count id queue type attempts", rows)


# -- deciding


def episodes(plans: Plans) -> Plan[list[Episode]]:
    """What is not over."""
    return [
        Episode(name, subject, plans.moment(since), value, peak, at(plans, calm), number, version)
        for name, subject, version, number, since, calm, value, peak in (yield sql(plans, "alert_episodes"))
    ]


def decide(plans: Plans, judge: Decide, now: Any) -> Plan[list[Raised | Over]]:
    """Do what `judge` makes of the episodes, each verdict if nobody was faster. The answer: what is to be told."""
    ((moment,),) = yield sql(plans, "op_moment", now=now)
    told: list[Raised | Over] = []
    for verdict in judge((yield from episodes(plans)), plans.moment(moment)):
        match verdict:
            case Raised():
                if (yield from _begin(plans, verdict)):
                    told.append(verdict)
            case Over():
                if (yield from _end(plans, verdict, moment)):
                    told.append(verdict)
            case Changed(before, after):
                yield sql(
                    plans,
                    "alert_change",
                    **_key(before),
                    value=after.value,
                    peak=after.peak,
                    calm_since=None if after.calm_since is None else stamp(plans, after.calm_since),
                )
    return told


def _begin(plans: Plans, verdict: Raised) -> Plan[bool]:
    each = verdict.episode
    since = stamp(plans, each.since)
    values = {"name": each.name, "subject": each.subject, "since": since, "value": each.value}
    if not (yield sql(plans, "alert_begin", **values, peak=each.peak)):
        return False
    ((number,),) = yield sql(
        plans,
        "alert_news",
        **values,
        what="raised",
        episode=None,
        at=since,
        threshold=verdict.threshold,
        text=verdict.text,
        details=_json(verdict.details),
    )
    yield sql(plans, "alert_number", name=each.name, subject=each.subject, number=number)
    return True


def _end(plans: Plans, verdict: Over, moment: Any) -> Plan[bool]:
    each = verdict.episode
    if not (yield sql(plans, "alert_end", **_key(each))):
        return False
    yield sql(
        plans,
        "alert_news",
        name=each.name,
        subject=each.subject,
        what="over",
        episode=each.number,
        at=moment,
        since=stamp(plans, each.since),
        value=verdict.value,
        threshold=verdict.threshold,
        text=verdict.text,
        details=_json({"peak": each.peak}),
    )
    return True


def _key(each: Episode) -> dict[str, object]:
    return {"name": each.name, "subject": each.subject, "version": each.version, "number": each.number}


# -- telling


def take(plans: Plans, seconds: float, now: Any) -> Plan[Row | None]:
    """The oldest news to be told, taken for so many seconds; None: there is none."""
    until = yield from ago(plans, -seconds, now)
    rows = yield sql(plans, "alert_take", until=until, now=now)
    return _news(plans, NEWS, rows)[0] if rows else None


def told(
    plans: Plans, number: int, tries: int, sinks: list[str], error: str | None, pause: float | None, now: Any
) -> Plan[bool]:
    """Who has heard the news. `pause`: seconds until it is tried again; None: it has ended."""
    until = yield from ago(plans, -(pause or 0.0), now)
    rows = yield sql(
        plans,
        "alert_told",
        number=number,
        tries=tries,
        told=_json(sinks),
        error=error,
        until=until,
        ended=until if pause is None else None,
    )
    return bool(rows)


def news(plans: Plans, limit: int) -> Plan[list[Row]]:
    """The newest news, and what became of it."""
    rows = yield sql(plans, "alert_list", limit=limit)
    return _news(plans, f"{NEWS} try_at ended_at error", rows)


def _news(plans: Plans, names: str, rows: list[tuple[Any, ...]]) -> list[Row]:
    return [
        {
            **row,
            "at": at(plans, row["at"]),
            "since": at(plans, row["since"]),
            "details": msgspec.json.decode(row["details"]),
            "told": msgspec.json.decode(row["told"]),
        }
        for row in shape(plans, names, rows)
    ]


# -- turns


def take_turn(plans: Plans, name: str, seconds: float, now: Any) -> Plan[bool]:
    """Whether it is the caller's turn to do this for all processes; the next one comes in so many seconds."""
    until = yield from ago(plans, -seconds, now)
    return bool((yield sql(plans, "turn_take", name=name, until=until, now=now)))


def put_off(plans: Plans, name: str, seconds: float, now: Any) -> Plan[None]:
    """The next turn comes no sooner than in so many seconds."""
    until = yield from ago(plans, -seconds, now)
    yield sql(plans, "turn_put_off", name=name, until=until)


# -- values


def stamp(plans: Plans, instant: datetime) -> Any:
    """An instant as the database writes it."""
    return instant if isinstance(plans, PostgresPlans) else micros(instant)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
