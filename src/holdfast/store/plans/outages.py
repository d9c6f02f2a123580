"""Outages in the store: when a queue last had a worker, the outage that is open, and the summaries of those that ended.

A worker that starts reads, decides and registers in one transaction. It locks when its queues last had a worker, so of
that start together one begins the outage. Later changes are compare and swap, like those of alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from ...model.names import serves
from ...model.outage import Began, Due, Ended, Outage, Sum, Verdict, WentOn
from ..statement import Plan, single, statements
from ..values import instant
from . import alerts, engine
from .operator import ago, moment
from .rows import TIMER

sql = statements("outages")

QUEUES_MAX = 1000

Arrived = Callable[[Sequence[Due], datetime], Began | None]
Judged = Callable[[Outage | None, Sequence[Due], int, datetime | None, bool, datetime], Verdict | None]


# -- workers come and go


def arrive(
    name: str, queues: Sequence[str], late: float, decide: Arrived
) -> Plan[tuple[int, Outage | None, bool, datetime]]:
    """Register a worker. Returns its number, the outage that is open, whether that has just begun, and the time."""
    gone = {queue: instant(at) for queue, at in (yield sql("presence_lock", queues=list(queues)))}
    due = yield from _due(gone, queues)
    number = yield from engine.register_worker(name, queues)
    yield sql("presence_here", queues=list(queues))
    found, has_begun = yield from _noticed(due, late, decide)
    return number, found, has_begun, (yield from moment())


def returned(
    queues: Sequence[str], absent: timedelta, late: float, decide: Arrived
) -> Plan[tuple[Outage | None, bool]]:
    """A worker could not work for so long. The same as above; if other workers ran, there is no outage."""
    yield sql("presence_lock", queues=list(queues))
    now = yield from moment()
    due = [Due(each.queue, each.since, now - absent) for each in (yield from _due({}, queues))]
    return (yield from _noticed(due, late, decide))


def _noticed(due: Sequence[Due], late: float, decide: Arrived) -> Plan[tuple[Outage | None, bool]]:
    now = yield from moment()
    found, began = (yield from _open()), decide(due, now)
    if found is not None and found.cause == "absent" and found.back_at is None:
        yield from _change(WentOn(found, now, None))
    elif began is not None and (found is None or _is_another(found, began)):
        if found is not None:  # no worker was left to end it: it lasted at most until then
            yield from _end(found, began.down_since or now, late)
        yield from _begin(began, now)
        return (yield from _open()), True
    return (yield from _open()), False


def _is_another(found: Outage, began: Began) -> bool:
    """Whether a worker ran between the outage that is open and the one that was noticed."""
    return began.down_since is not None and began.down_since >= (found.back_at or found.noticed_at)


def leave(worker: int, *, died: bool = False) -> Plan[None]:
    """Remove a worker that holds nothing any more, and record until when its queues had it.

    `died`: it was there until it was last seen; otherwise it is there until now.
    """
    yield sql("presence_left", worker=worker, died=died)
    yield from engine.retire_worker(worker)


def keep(before: datetime) -> Plan[None]:
    """Record when workers were last seen whose rows are removed next."""
    yield sql("presence_kept", before=before)


# -- looking


def look(late: float, lease: float, judge: Judged, served: Sequence[str] = ()) -> Plan[Verdict | None]:
    """Store what `judge` decides about what is due and late, unless another process was faster.

    Queues without a worker do not count while other workers run. `served`: by the worker that checks and ran until now.
    """
    now = yield from moment()
    since = yield from ago(lease)
    due = yield from _due({queue: instant(at) for queue, at in (yield sql("presence_list"))})
    seen = {queue: instant(at) for queue, at in (yield sql("presence_seen"))}
    alive = [*served, *(name for name, at in seen.items() if at >= since)]
    waits = [
        (at, count)
        for queue, paused, _, at, count in (yield from alerts.backlog(late))
        if count and not paused and _is_served(alive, queue)
    ]
    oldest = min((at for at, _ in waits), default=None)
    open = yield from _open()
    attended = [each for each in due if not alive or _is_served(alive, each.queue)]
    verdict = judge(open, attended, sum(count for _, count in waits), oldest, bool(alive), now)
    match verdict:
        case Began():
            return verdict if (yield from _begin(verdict, now)) else None
        case WentOn():
            return verdict if (yield from _change(verdict)) else None
        case Ended(outage, at):
            return verdict if (yield from _end(outage, at, late)) else None
    return None


def _is_served(alive: Sequence[str], queue: str) -> bool:
    return queue == TIMER or serves(alive, queue)


def _due(gone: dict[str, datetime], queues: Sequence[str] | None = None) -> Plan[list[Due]]:
    """The queues with something due: these, or all. `gone`: when queues last had a worker that is gone."""
    seen = {queue: instant(at) for queue, at in (yield sql("presence_seen"))}
    found = []
    for queue, since in (yield sql("outage_due", queues=QUEUES_MAX)):
        if queues is not None and not _is_served(queues, queue):
            continue
        times = [at for name, at in (*gone.items(), *seen.items()) if _is_served([name], queue)]
        found.append(Due(queue, instant(since), max(times, default=None)))
    return found


def summed(outage: Outage, until: datetime, late: float) -> Plan[Sum]:
    """The messages that were handled late since an outage began."""
    span = {"since": outage.began_at, "until": until}
    (row,) = yield sql("outage_sum", **span, back_at=outage.back_at, late=late)
    ((died,),) = yield sql("outage_died", **span)
    handled, mean, most, oldest, last = row
    return Sum(int(handled), int(died), mean or 0.0, most or 0.0, instant(oldest), instant(last))


def _begin(began: Began, now: datetime) -> Plan[bool]:
    rows = yield sql(
        "outage_begin",
        cause=began.cause,
        began_at=began.began_at,
        noticed_at=now,
        down_since=began.down_since,
        back_at=began.back_at,
        oldest_at=began.oldest_at,
    )
    return bool(rows)


def _change(verdict: WentOn) -> Plan[bool]:
    each = verdict.outage
    key = {"number": each.number, "version": each.version}
    rows = yield sql("outage_change", **key, back_at=verdict.back_at, calm_since=verdict.calm_since)
    return bool(rows)


def _end(outage: Outage, at: datetime, late: float) -> Plan[bool]:
    """It ended when the last late message was handled; if there was none, at this moment."""
    found = yield from summed(outage, at, late)
    ended = at if found.caught_up_at is None else max(found.caught_up_at, outage.back_at or outage.began_at)
    rows = yield sql(
        "outage_end",
        number=outage.number,
        version=outage.version,
        ended_at=ended,
        oldest_at=min(outage.oldest_at, found.oldest_at or outage.oldest_at),
        handled=found.handled,
        died=found.died,
        late_mean=found.late_mean,
        late_max=found.late_max,
        caught_up_at=found.caught_up_at,
    )
    return bool(rows)


# -- asking


def silence() -> Plan[tuple[datetime | None, datetime | None]]:
    """When any worker last ran, present or gone, and since when something is due."""
    gone = [instant(at) for _, at in (yield sql("presence_list"))]
    seen = yield from alerts.last_seen()
    due = yield sql("outage_due", queues=QUEUES_MAX)
    last = max([*gone, *([] if seen is None else [seen])], default=None)
    return last, min((instant(at) for _, at in due), default=None)


@single
def open_outage() -> Plan[Outage | None]:
    """The outage that is not over."""
    return (yield from _open())


@single
def listed(limit: int, number: int | None = None) -> Plan[list[Outage]]:
    """Outages, the newest first."""
    return [_outage(row) for row in (yield sql("outage_list", number=number, limit=limit))]


def _open() -> Plan[Outage | None]:
    rows = yield sql("outage_open")
    return _outage(rows[0]) if rows else None


def _outage(row: tuple[Any, ...]) -> Outage:
    (
        number,
        cause,
        began,
        noticed,
        down,
        back,
        oldest,
        calm,
        ended,
        version,
        handled,
        died,
        mean,
        most,
        caught,
    ) = row
    return Outage(
        int(number), cause, instant(began), instant(noticed), instant(down), instant(back), instant(oldest),
        instant(calm), instant(ended), int(version), int(handled or 0), int(died or 0), mean or 0.0, most or 0.0,
        instant(caught),
    )  # fmt: skip
