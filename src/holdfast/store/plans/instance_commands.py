"""Commands of operators about instances of orchestrations, as plans for both databases.

Locks are taken in the same sequence as everywhere: messages, leases, the instance's row, the stream's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ...model.ids import new_id
from ...model.message import NewMessage
from ..statement import Plan, single, statements
from ..values import as_id, encode
from . import engine, operator, scheduled
from .operator import TargetChanged

sql = statements("instances")

WITHDRAW, WITHDRAWALS = "holdfast.withdraw", "holdfast/signals"  # a message for a worker, and its queue
LOOK_AGAIN = 1.0  # seconds


@single
def suspend(id: str, why: str) -> Plan[bool]:
    """Hold an instance. A turn that is running is stored. False: the instance is not running."""
    return bool((yield sql("instance_suspend", id=id, why=why)))


HELD = ("paused", "suspended")


def resume(id: str, queue: str, states: Sequence[str] = HELD) -> Plan[bool]:
    """Let an instance in one of these states continue; False: it is in none. Refused while a worker has its message.

    That worker may be about to halt the stream because it read the old state.
    """
    first = yield from operator.hold_first(queue, id)
    if first is not None:
        yield from operator.hold(first)
    if not (yield sql("instance_resume", id=id, states=list(states))):
        return False
    yield from lift(queue, id)
    return True


def lift(queue: str, id: str) -> Plan[None]:
    """Let the stream of an instance continue, if it is halted."""
    rows = yield operator.sql("op_stream_row", queue=queue, stream=id)
    if rows:
        yield from operator.resume(queue, id)


def terminate(
    id: str, queue: str, at: tuple[int, int], result: str, why: str, calls: Sequence[UUID]
) -> Plan[str | None]:
    """End an instance that is at (execution, turn), with its open calls and timers; returns who waits for it, as JSON.

    TargetChanged if it has moved on.
    """
    yield from withdraw(calls, "its instance was terminated")
    execution, turn = at
    rows = yield sql("instance_terminate", id=id, execution=execution, turn=turn, result=result, why=why)
    if not rows:
        raise TargetChanged
    yield from lift(queue, id)
    reply: str | None = rows[0][0]
    return reply


class Adoption(NamedTuple):
    """A child that is kept: the message that started it, and the message that does so now; who waits for its end."""

    id: str
    old: UUID
    new: UUID
    reply: str


class Rewind(NamedTuple):
    """The next execution of an instance that is at (execution, turn): its journal, and the calls given up for it."""

    id: str
    queue: str
    at: tuple[int, int]
    rows: Sequence[tuple[int, str]]  # (turn, text), in order
    entries: int
    size: int
    mark: UUID
    calls: Sequence[UUID]
    adopted: Sequence[Adoption]


def rewind(order: Rewind) -> Plan[None]:
    """Let an instance continue from an earlier point. TargetChanged if it has moved on."""
    yield from withdraw(order.calls, "its instance was rewound")
    (execution, turn), turns = order.at, [each for each, _ in order.rows]
    state = ""
    adopted = {each.id: each for each in order.adopted}
    for id in sorted({order.id, *adopted}):  # instance rows are locked sorted
        if (child := adopted.get(id)) is not None:
            yield sql("instance_adopt", id=id, old=child.old, new=child.new, reply=child.reply)
            continue
        rows = yield sql(
            "instance_rewind", id=id, execution=execution, turn=turn, turns=turns[-1], mark=order.mark,
            entries=order.entries, size=order.size,
        )  # fmt: skip
        if not rows:
            raise TargetChanged
        state = str(rows[0][0])
    bodies = [text for _, text in order.rows]
    yield sql("instance_rows", id=order.id, execution=execution + 1, turns=turns, bodies=bodies)
    if state == "running":
        yield from lift(order.queue, order.id)


def withdraw(calls: Sequence[UUID], why: str) -> Plan[None]:
    """End the messages of calls and timers; workers that run one are asked to stop.

    Locked ones are tried again later.
    """
    left = yield from withdrawn(calls, why)
    if left:
        text = encode([str(each) for each in left])
        again = NewMessage(new_id(), WITHDRAW, text, queue=WITHDRAWALS, delay=LOOK_AGAIN)
        yield from engine.append([again])


def withdrawn(calls: Sequence[UUID], why: str) -> Plan[list[UUID]]:
    """The same without a later try; locked ones are left."""
    if not calls:
        return []
    yield from scheduled.recall_ids(calls)
    rows = yield sql("instance_calls", ids=list(calls))
    seqs = [seq for seq, _ in rows]
    running = {seq for (seq,) in (yield sql("instance_ask", seqs=seqs))}
    ended = [seq for seq in seqs if seq not in running]
    waiting = [seq for seq, is_call in rows if is_call and seq not in running]
    yield operator.sql("op_ended", seqs=waiting, outcome="cancelled", why=f"withdrawn: {why}")
    yield operator.sql("op_delete", seqs=ended)
    return [as_id(id) for (id,) in (yield sql("instance_unasked", ids=list(calls)))]


def send_all(messages: Sequence[NewMessage]) -> Plan[None]:
    """Messages to other instances, in the same transaction."""
    if messages:
        yield from engine.append(list(messages))
