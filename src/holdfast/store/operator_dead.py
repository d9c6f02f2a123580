"""The way back of dead letters, what else may be ordered about them, and their end, for both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from . import plans_sqlite
from .operator_plans import OrderMoved, advance, as_id, hold_first, many, still_first
from .operator_queries import Row
from .plans import Plans, sql
from .plans_postgres import PostgresPlans
from .statement import Plan

ARCHIVED = "archived"  # an outcome in the history

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


def redrive(
    plans: Plans, keys: Sequence[Key], out: bool, now: Any, delays: Mapping[Key, float] | None = None
) -> Plan[list[Key]]:
    """Dead letters come back, in the order of their old positions; the answer names those that did.

    Those that are held stay. `delays` says which may be claimed only after so many seconds. One that halts its stream
    comes back as its head and lifts the halt; others go to the end of their stream, or with `out` beside it.
    The row of the stream is held before it is decided who is head, as a producer does.
    """
    rows = yield sql(plans, "op_dead_lock", **_named(plans, keys))
    if not rows:
        return []
    rows.sort(key=lambda row: (row[3] or row[4], row[4]))
    letters = [(as_id(id), queue, stream, position) for id, queue, stream, position, *_ in rows]
    halted = yield from _halted(plans, letters)
    if out:
        back = [Back(id, queue, stream, None, True) for id, queue, stream, _ in letters]
    else:
        back = yield from _enter(plans, letters, halted)
    yield from _insert(plans, back, delays or {}, now)
    yield sql(plans, "op_dead_delete", **_named(plans, [(each.id, each.queue) for each in back]))
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


def _insert(plans: Plans, back: Sequence[Back], delays: Mapping[Key, float], now: Any) -> Plan[None]:
    if isinstance(plans, PostgresPlans):
        yield plans.sql(
            "op_redrive",
            ids=[str(each.id) for each in back],
            queues=[each.queue for each in back],
            positions=[each.place or 0 for each in back],
            heads=[each.head for each in back],
            delays=[delays.get((each.id, each.queue), 0.0) for each in back],
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
            delay=round(delays.get((each.id, each.queue), 0.0) * 1_000_000),
            now=now,
        )
        if last:
            yield plans_sqlite.sql("op_redrive_place", seq=seq, head=int(each.head))


def discard(plans: Plans, id: UUID, queue: str, now: Any, why: str | None = None) -> Plan[str | None]:
    """A dead letter leaves for the history and frees its dedupe key. The answer names a stream that it still halts."""
    named = _named(plans, [(id, queue)])
    rows = yield sql(plans, "op_dead_lock", **named)
    if not rows:
        raise OrderMoved
    stream = rows[0][2]
    yield sql(plans, "op_dead_ended", **named, outcome="discarded", why=why, now=now)
    yield sql(plans, "op_dead_free", id=str(id), queue=queue)
    yield sql(plans, "op_dead_delete", **named)
    halted = (yield sql(plans, "op_stream_row", queue=queue, stream=stream)) if stream is not None else []
    return stream if halted and halted[0][1] == str(id) else None


def hold(plans: Plans, id: UUID, queue: str, why: str | None, now: Any) -> Plan[bool]:
    """A dead letter stays where it is until it is let go (`why` is None then). False: it is gone."""
    held = plans.boolean(why is not None)
    return bool((yield sql(plans, "op_dead_hold", id=str(id), queue=queue, held=held, why=why, now=now)))


def edit(plans: Plans, id: UUID, queue: str, epoch: int, body: str) -> Plan[bool]:
    """A dead letter gets another body; the one it died with is kept. False: it is not the one that was seen."""
    yield sql(plans, "op_death_original", id=str(id), queue=queue)
    return bool((yield sql(plans, "op_dead_edit", id=str(id), queue=queue, epoch=epoch, body=body)))


# -- files


def put(
    plans: Plans, letters: Sequence[Row], deaths: Sequence[Row], force: bool, now: Any
) -> Plan[tuple[set[Key], set[Key]]]:
    """Dead letters from a file. Those that are here are left as they are, and what has ended since they died is left
    out, unless by `force`. The answer names those that were stored, and those that have ended.

    Both are looked at when the rows are in, by statements that begin then: an insert may have waited for an order that
    brought its letter back, and cannot see what that one did. From then on only our row could be brought back.
    """
    sorted_ = sorted(letters, key=lambda row: (row["id"], row["queue"]))  # as an order locks them
    rows = yield sql(plans, "op_dead_import", letters=_written(plans, sorted_), now=now)
    fresh = [(as_id(id), queue) for id, queue in rows]
    died = {(as_id(row["id"]), row["queue"]): row["died_at"] for row in reversed(sorted_)}
    back = yield from _pending(plans, fresh)
    over = set() if force else (yield from _over(plans, {key: died[key] for key in fresh if key not in back}))
    if back or over:
        yield sql(plans, "op_dead_delete", **_named(plans, sorted(back | over)))
        fresh = [key for key in fresh if key not in back and key not in over]
    if fresh:
        known = set(fresh)
        theirs = {  # each once, although a file may have a letter twice
            (each["id"], each["queue"], each["died_at"]): each
            for each in deaths
            if (as_id(each["id"]), each["queue"]) in known
        }
        yield sql(plans, "op_death_import", deaths=_written(plans, list(theirs.values())))
        yield sql(plans, "op_dead_key_hold", **_named(plans, fresh))
    return set(fresh), over


def _pending(plans: Plans, keys: Sequence[Key]) -> Plan[set[Key]]:
    rows = (yield sql(plans, "op_standing", **_named(plans, keys))) if keys else []
    return {(as_id(id), queue) for id, queue, pending, _ in rows if pending}


def _over(plans: Plans, died: Mapping[Key, datetime]) -> Plan[set[Key]]:
    """Which of these letters have ended since they died. An archive is not the end of one: it can be restored."""
    if not died:
        return set()
    rows = yield sql(
        plans,
        "op_dead_since",
        **_named(plans, list(died)),
        times=many(plans, [_value(plans, at) for at in died.values()]),
        since=_value(plans, min(died.values())),
    )
    return {(as_id(id), queue) for id, queue, outcome in rows if outcome != ARCHIVED}


def archived(plans: Plans, seen: Mapping[Key, int], where: str, now: Any) -> Plan[list[Key]]:
    """Dead letters that are safely archived go, if they are still as they were (by epoch); the answer names them."""
    rows = yield sql(plans, "op_dead_lock", **_named(plans, list(seen)))
    still = {(as_id(id), queue): epoch for id, queue, *_, epoch in rows}
    gone = [key for key, epoch in seen.items() if still.get(key) == epoch]
    for name, params in (
        ("op_dead_ended", {"outcome": ARCHIVED, "why": where, "now": now}),
        ("op_dead_key_end", {"now": now}),
        ("op_dead_delete", {}),
    ):
        yield sql(plans, name, **_named(plans, gone), **params)
    return gone


def _named(plans: Plans, keys: Sequence[Key]) -> dict[str, object]:
    return {
        "ids": many(plans, [str(id) for id, _ in keys]),
        "queues": many(plans, [queue for _, queue in keys]),
    }


def _written(plans: Plans, rows: Sequence[Row]) -> str:
    """Rows as JSON, with instants as the database takes them."""
    return plans_sqlite.encode([{name: _value(plans, value) for name, value in row.items()} for row in rows])


def _value(plans: Plans, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat() if isinstance(plans, PostgresPlans) else plans_sqlite.instant(value)
    return value
