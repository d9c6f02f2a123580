"""The way back of dead letters, and their end, as plans written once for both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from . import plans_sqlite
from .operator_plans import OrderMoved, advance, as_id, hold_first, many, still_first
from .plans import Plans, sql
from .plans_postgres import PostgresPlans
from .statement import Plan

Key = tuple[UUID, str]  # id and queue
Letter = tuple[UUID, str, str | None, int | None]  # id, queue, stream, old position
Halted = dict[
    tuple[str, str], tuple[UUID, int | None]
]  # queue and stream: who halts it, the first in its order


@dataclass(frozen=True, slots=True)
class Back:
    """A dead letter on its way back. `place`: its old position at the front, -1 for the end, None out of the order."""

    id: UUID
    queue: str
    stream: str | None
    place: int | None
    head: bool


def redrive(plans: Plans, keys: Sequence[Key], out: bool, now: Any) -> Plan[list[Key]]:
    """Dead letters come back, in the order of their old positions; the answer names those that did.

    One that halts its stream comes back as its head and lifts the halt; others go to the end of their stream, or with
    `out` beside it. The row of the stream is held before it is decided who is head, as a producer does.
    """
    ids, queues = many(plans, [str(id) for id, _ in keys]), many(plans, [queue for _, queue in keys])
    rows = yield sql(plans, "op_dead_lock", ids=ids, queues=queues)
    if not rows:
        return []
    rows.sort(key=lambda row: (row[3] or row[4], row[4]))
    letters = [(as_id(id), queue, stream, position) for id, queue, stream, position, _ in rows]
    halted = yield from _halted(plans, letters)
    if out:
        back = [Back(id, queue, stream, None, True) for id, queue, stream, _ in letters]
    else:
        back = yield from _enter(plans, letters, halted)
    yield from _insert(plans, back, now)
    yield sql(
        plans,
        "op_dead_delete",
        ids=many(plans, [str(each.id) for each in back]),
        queues=many(plans, [each.queue for each in back]),
    )
    if out:
        yield from _lift(plans, halted, now)
    return [(each.id, each.queue) for each in back]


def _halted(plans: Plans, letters: Sequence[Letter]) -> Plan[Halted]:
    """The streams that these letters halt, with the first message of each locked.

    It will be promoted, or another one comes back before it: an order that holds it must be over by then.
    """
    found: Halted = {}
    for id, queue, stream, position in letters:
        if stream is not None and position is not None:
            rows = yield sql(plans, "op_stream_row", queue=queue, stream=stream)
            if rows and rows[0][1] == str(id):
                found[queue, stream] = id, None
    for (queue, stream), (id, _) in sorted(found.items()):
        found[queue, stream] = id, (yield from hold_first(plans, queue, stream))
    return found


def _lift(plans: Plans, halted: Halted, now: Any) -> Plan[None]:
    """The streams go on without those that halted them."""
    for (queue, stream), (id, first) in sorted(halted.items()):
        if not (yield sql(plans, "op_stream_lift", queue=queue, stream=stream, by=str(id))):
            raise OrderMoved
        yield from still_first(plans, queue, stream, first)
        yield from advance(plans, [(queue, stream, 0)], now)


def _enter(plans: Plans, letters: Sequence[Letter], halted: Halted) -> Plan[list[Back]]:
    """Count letters into their streams and find out which of them are heads."""
    counts = Counter((queue, stream) for _, queue, stream, _ in letters if stream is not None)
    rows: Iterable[tuple[Any, ...]] = ()
    if counts:
        streams = sorted(counts)
        rows = yield sql(
            plans,
            "op_streams_enter",
            queues=many(plans, [queue for queue, _ in streams]),
            streams=many(plans, [stream for _, stream in streams]),
            counts=many(plans, [counts[each] for each in streams]),
        )
    state = {(queue, stream): (opened, halted_by) for queue, stream, opened, halted_by in rows}
    back, headed = [], set()
    for id, queue, stream, position in letters:
        if stream is not None and state[queue, stream][1] == str(id):
            if (queue, stream) not in halted:
                raise OrderMoved
            yield from still_first(plans, queue, stream, halted[queue, stream][1])
            yield sql(plans, "op_stream_lift", queue=queue, stream=stream, by=str(id))
            back.append(Back(id, queue, stream, position, True))
            headed.add((queue, stream))
    returned = {(each.id, each.queue) for each in back}
    for id, queue, stream, _ in letters:
        if stream is None:
            back.append(Back(id, queue, None, None, True))
        elif (id, queue) not in returned:
            opened, halted_by = state[queue, stream]
            head = (queue, stream) not in headed and halted_by is None and opened == counts[queue, stream]
            back.append(Back(id, queue, stream, -1, head))
            headed.add((queue, stream))
    return back


def _insert(plans: Plans, back: Sequence[Back], now: Any) -> Plan[None]:
    if isinstance(plans, PostgresPlans):
        yield plans.sql(
            "op_redrive",
            ids=[str(each.id) for each in back],
            queues=[each.queue for each in back],
            positions=[each.place or 0 for each in back],
            heads=[each.head for each in back],
            now=now,
        )
        return
    for each in back:
        last = each.place == -1
        ((seq,),) = yield plans_sqlite.sql(
            "op_redrive",
            id=str(each.id),
            queue=each.queue,
            position=None if last else each.place,
            head=int(each.head and not last),
            now=now,
        )
        if last:
            yield plans_sqlite.sql("op_redrive_place", seq=seq, head=int(each.head))


def discard(plans: Plans, id: UUID, queue: str, now: Any) -> Plan[str | None]:
    """A dead letter leaves for the history and frees its dedupe key. The answer names a stream that it still halts."""
    rows = yield sql(plans, "op_dead_lock", ids=many(plans, [str(id)]), queues=many(plans, [queue]))
    if not rows:
        raise OrderMoved
    stream = rows[0][2]
    for name, params in (
        ("op_dead_ended", {"id": str(id), "queue": queue, "now": now}),
        ("op_dead_free", {"id": str(id), "queue": queue}),
        ("op_dead_delete", {"ids": many(plans, [str(id)]), "queues": many(plans, [queue])}),
    ):
        yield sql(plans, name, **params)
    halted = (yield sql(plans, "op_stream_row", queue=queue, stream=stream)) if stream is not None else []
    return stream if halted and halted[0][1] == str(id) else None
