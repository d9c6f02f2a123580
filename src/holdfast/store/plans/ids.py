"""Messages by the beginning or the end of their id, for both databases. The number of rows read is bounded."""

from __future__ import annotations

from uuid import UUID

from ..statement import Plan, single, statements
from ..values import as_id
from .operator import ago
from .queries import Row, shape

sql = statements("ids")

NEWEST = 1_000_000  # ids of each table are looked at for their last characters: op_id_ends, op_id_ended
ENDED_SECONDS = 86_400.0
ROWS_MAX = 200
IDS_MAX = 11


@single
def begins(low: UUID, high: UUID) -> Plan[list[Row]]:
    """Messages with ids between two: where they are, of which type, since when."""
    rows = yield sql("op_id_begins", low=str(low), high=str(high), limit=ROWS_MAX)
    return shape("id queue type what created_at", rows)


def ends(tail: str) -> Plan[set[UUID]]:
    """Ids with this ending: pending and dead ones, and if there are none, those that have ended."""
    rows = yield sql("op_id_ends", tail=tail, limit=IDS_MAX)
    if not rows:
        since = yield from ago(ENDED_SECONDS)
        rows = yield sql("op_id_ended", tail=tail, since=since, limit=IDS_MAX)
    return {as_id(id) for (id,) in rows}
