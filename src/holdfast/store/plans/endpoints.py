"""Destinations and inboxes in the store, for both databases, and the state of the workers' connections.

Workers report that state for people only. Nothing of the engine depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...model.endpoint import Endpoint, Standing
from ..statement import Plan, single, statements
from .operator import moment
from .queries import Row, queue_pending, shape

sql = statements("endpoints")

ENDPOINT = "queue kind transport address last_at seen_at"
CONNECTION = "queue number worker state since why tries last_at told_at seen_at"
LISTED_MAX = 10_000
WHY_MAX = 500
COUNT_MAX = 1_000_000


def meet(endpoints: Sequence[Endpoint]) -> Plan[None]:
    """A worker registers its destinations and inboxes at its start, in the order of their names, like every worker."""
    for each in sorted(endpoints, key=lambda each: each.queue):
        yield sql(
            "endpoint_meet",
            queue=each.queue,
            kind=each.kind,
            transport=each.transport,
            address=each.address[:WHY_MAX],
        )


def report(worker: int, standings: Sequence[tuple[str, Standing]]) -> Plan[None]:
    """The state of a worker's connections, by queue. Nothing is stored for a worker that was removed."""
    now = yield from moment()
    for queue, standing in sorted(standings, key=lambda each: each[0]):
        last = None if standing.last_age is None else now - timedelta(seconds=standing.last_age)
        yield sql(
            "connection_report",
            queue=queue,
            worker=worker,
            state=standing.state,
            since=now - timedelta(seconds=standing.age),
            why=None if standing.why is None else standing.why[:WHY_MAX],
            tries=standing.tries,
            last_at=last,
        )
        yield sql("endpoint_last", queue=queue, last_at=last)


@single
def leave(worker: int) -> Plan[None]:
    """A worker ends."""
    yield sql("connections_drop", worker=worker)


@single
def known(queue: str | None = None) -> Plan[list[Row]]:
    """Every destination and inbox that a worker has had, or one."""
    return shape(ENDPOINT, (yield sql("endpoints", queue=queue, limit=LISTED_MAX)))


@single
def connections(queue: str | None = None) -> Plan[list[Row]]:
    """The state of the connections of known workers."""
    return shape(CONNECTION, (yield sql("connections", queue=queue, limit=LISTED_MAX)))


def facts(queue: str) -> Plan[Row]:
    """The state of an endpoint's queue: whether it is paused, what waits in it and since when, its dead letters."""
    (row,) = shape("paused_at paused_why oldest_at", (yield sql("endpoint_queue", queue=queue)))
    pending, dead = yield from queue_pending(queue, COUNT_MAX)
    return {**row, "pending": pending, "dead": dead}


@single
def prune() -> Plan[int]:
    """Remove the connections of workers that were removed."""
    return len((yield sql("connections_prune")))


@single
def forget(queue: str) -> Plan[None]:
    """Its queue was removed."""
    yield sql("endpoint_forget", queue=queue)
