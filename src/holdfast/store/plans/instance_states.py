"""What changes the state of an instance beside its turns: suspend, resume, and a dead letter that opens it again.

Locks are taken as a settlement takes them: the first message of its stream, the instance's row, the stream's row. A
suspended or paused instance has its stream halted, and its first message is no head. A turn that is running while an
instance is suspended is stored; one that must be tried again finds the state, and is demoted then.
"""

from __future__ import annotations

from ...model.work import INSTANCE
from ..statement import Plan, statements
from . import operator
from .instances import queue_of
from .operator import OrderMoved, advance, hold_first, still_first

sql = statements("instances")

Found = (
    tuple[str, str] | None
)  # the queue of an instance, and its state before; None: there is no such instance


def suspend(id: str, why: str | None) -> Plan[Found]:
    """Hold a running instance: none of its turns begins until it is resumed. In another state nothing is changed."""
    found = yield from queue_of(id)
    if found is None or found[1] != "running":
        return found
    queue, _ = found
    first = yield from hold_first(queue, id)
    if not (yield sql("instance_suspend", id=id, why=why)):
        raise OrderMoved
    yield sql("instance_halt", queue=queue, id=id, by=f"{INSTANCE}suspended")
    yield from still_first(queue, id, first)
    if first is not None and not (
        yield operator.sql("op_lease", seq=first, first=None, position=None)
    ):  # one in a worker's hands goes on to its end
        yield operator.sql("op_demote", seq=first)
    return found


def resume(id: str) -> Plan[Found]:
    """Let an instance go on that is paused or suspended. In another state nothing is changed."""
    found = yield from queue_of(id)
    if found is None or found[1] not in ("paused", "suspended"):
        return found
    queue, _ = found
    first = yield from hold_first(queue, id)
    if not (yield sql("instance_resume", id=id)):
        raise OrderMoved
    rows = yield operator.sql("op_stream_row", queue=queue, stream=id)
    if rows and (rows[0][1] or "").startswith(INSTANCE):
        if not (yield operator.sql("op_stream_lift", queue=queue, stream=id, by=rows[0][1])):
            raise OrderMoved
        yield from still_first(queue, id, first)
        yield from advance([(queue, id, 0)])
    return found
