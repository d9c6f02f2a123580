"""The doctor's questions about the database, its rows and its workers, as plans for both databases."""

from __future__ import annotations

from datetime import datetime

from ..installed import Installed
from ..statement import Plan, Verb, single, statements
from ..values import instant
from .operator import ago, moment
from .queries import Row, shape

sql = statements("doctor")


def version() -> Verb[tuple[Installed, Installed]]:
    """The schema and the functions that the database has, and those that this release brings."""
    return Verb("operator", "installed", is_alone=True)


def server() -> Verb[Row]:
    """The database's settings about the durability of a commit."""
    return Verb("operator", "server")


@single
def holding(transactions: int, limit: int) -> Plan[list[Row]]:
    """What holds back vacuum, the oldest first; and replication slots that are so many transactions behind."""
    rows = yield sql("op_holding", transactions=transactions, limit=limit)
    return shape("kind name owner state seconds", rows)


def times() -> Plan[tuple[datetime, datetime | None]]:
    """The database's time, and the latest time of anything that has happened by the stored rows."""
    ((latest,),) = yield sql("op_ahead_of_time")
    now = yield from moment()  # read after the times it is compared with
    return now, instant(latest)


def endless(seconds: float, limit: int) -> Plan[list[Row]]:
    """Leases that end more than so many seconds from now."""
    after = yield from ago(-seconds)
    return shape("id queue worker until", (yield sql("op_endless", after=after, limit=limit)))


def flow(seconds: float) -> Plan[list[Row]]:
    """By queue: what came within so many seconds and is still there, what ended, and how much of that is older."""
    since = yield from ago(seconds)
    rows = yield sql("op_flow", since=since)
    return shape("queue arrived ended older", rows)


@single
def open_differs(limit: int) -> Plan[list[Row]]:
    return shape("queue stream open found", (yield sql("op_open_differs", limit=limit)))


@single
def stranded(limit: int) -> Plan[list[Row]]:
    return shape("queue stream open halted_by", (yield sql("op_stranded", limit=limit)))


def lapsed(seconds: float) -> Plan[Row]:
    """Leases that expired longer ago than that."""
    before = yield from ago(seconds)
    return shape("count oldest_at", (yield sql("op_lapsed", before=before)))[0]


def troubled(seconds: float, limit: int) -> Plan[list[Row]]:
    """Workers that had trouble with their database within so many seconds."""
    after = yield from ago(seconds)
    rows = yield sql("op_worker_trouble", after=after, limit=limit)
    return shape("name trouble trouble_at timeouts restarts", rows)
