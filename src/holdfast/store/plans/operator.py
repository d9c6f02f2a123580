"""An operator's commands, as plans written once for both databases.

A command about a message in the order of a stream locks the first message of that order (the head, unless the stream is
halted), then the message itself. Only then, in a statement of its own, it checks whether a lease covers the message.
While the first one is locked, nothing of the stream can be claimed or settled, and nothing is put before it: a redrive
that does so locks it too. Messages that leave the order are subtracted in the stream's row, and another statement
promotes the next one. Locks are taken in one sequence everywhere: messages with the first of a stream
before the others, leases, dedupe keys, stream rows. Every change raises the epoch of the message. Messages that become
claimable again get the current time or a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ...errors import NotFound, Refused
from ...model import names, replies
from ...model.message import Reason
from ..statement import Plan, Verb, single, statements
from ..values import as_id, instant
from . import engine, scheduled
from .rows import TIMER

sql = statements("operator")

INSTANCES = "holdfast orchestrations"
TURN_TIMER = "holdfast.timer"  # the type of a timer that an instance waits for
LOOKS = 5  # tries to read a message that changes in the meantime


class TargetChanged(Exception):
    """The target of the command changed while it ran: try again, in a new transaction."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that is locked until the end of the transaction. `lease` is set only for a command that ends it."""

    seq: int
    id: UUID
    queue: str | None
    stream: str | None
    position: int | None
    head: bool
    errors: Any
    lease: tuple[int, int] | None = None  # seq and epoch


# -- locking


def hold(seq: int, *, leased: bool = False) -> Plan[Held]:
    """Lock a message and the first of its stream. Refused while a worker holds it, unless `leased` allows that."""
    for _ in range(LOOKS):
        rows = yield sql("op_look", seq=seq)
        if not rows:
            if not (yield from scheduled.recall([seq])):
                raise TargetChanged
            continue
        queue, stream, position = rows[0]
        first = None
        if position is not None:
            first = yield from hold_first(queue, stream)
        rows = yield sql("op_lock", seq=seq)
        if not rows or (rows[0][1], rows[0][3]) != (queue, position):
            raise TargetChanged
        id, _, _, _, head, errors = rows[0]
        held = Held(seq, as_id(id), queue, stream, position, bool(head), errors)
        lease = yield sql("op_lease", seq=seq, first=first, position=position)
        if not lease:
            return held
        run, epoch, until, live, worker, run_id = lease[0]
        if not live:
            yield from engine.recover()
        elif leased and run == seq:
            return replace(held, lease=(run, epoch))
        else:
            raise Refused(
                in_hands(held.id, queue, worker, instant(until), None if run == seq else as_id(run_id))
            )
    raise TargetChanged


def hold_first(queue: str, stream: str) -> Plan[int | None]:
    """Lock the first message in the order of a stream and make sure that it is the first; None: the order is empty."""
    rows = yield sql("op_lock_first", queue=queue, stream=stream)
    if not rows:
        return None
    seq, position = rows[0]
    # A redrive that had it locked before may have put another one in front of it.
    if (yield sql("op_lower", queue=queue, stream=stream, position=position)):
        raise TargetChanged
    return int(seq)


def in_hands(id: UUID, queue: str | None, worker: str, until: datetime | None, run: UUID | None) -> str:
    lead = f"Message {id} in queue {queue} is leased by {worker} until {until:%Y-%m-%d %H:%M:%S} UTC"
    if run is not None:
        lead += f", handed out together with {run} of its stream"
    return f"{lead}: wait until it comes back, or stop that worker."


def let_go(held: Held) -> Plan[None]:
    """Promote the next message after a locked one has left the order of its stream, if it was in one."""
    if held.position is not None:
        assert held.queue is not None
        assert held.stream is not None
        yield from advance([(held.queue, held.stream, 1)])


@single
def advance(streams: Sequence[tuple[str, str, int]]) -> Plan[None]:
    """Promote the first of streams (queue, name, how many left the order), unless they are halted.

    The stream's row is updated, not only locked: a producer with an older snapshot then gets an error instead of
    leaving its message behind.
    """
    if not streams:
        return
    yield Verb("operator", "advance", (streams,))


# -- messages


def retry(seq: int, reset: bool) -> Plan[None]:
    """Make a message claimable now, when its turn comes; `reset` also sets its counters to 0."""
    held = yield from hold(seq)
    yield sql("op_retry", seqs=[seq], reset=reset)
    yield from _put_by(held)


def retry_heads(seqs: Sequence[int], reset: bool) -> Plan[set[int]]:
    """Make those of these messages claimable now that are heads and not leased or locked; returns them.

    A head is the first of its stream, and no stream changes, so many can be done in one transaction.
    """
    recalled = yield from scheduled.recall(seqs)
    locked = [seq for (seq,) in (yield sql("op_lock_heads", seqs=list(seqs)))]
    rows = yield sql("op_retry", seqs=locked, reset=reset)
    if recalled:
        yield from _put_by_again(recalled)
    return {seq for (seq,) in rows}


def park(seq: int) -> Plan[None]:
    """Park a message: it keeps its place and is not claimable."""
    held = yield from hold(seq)
    yield sql("op_park", seq=seq)
    yield from _put_by(held)


def _put_by(held: Held) -> Plan[None]:
    if held.queue == TIMER:
        yield from _put_by_again([held.seq])


def _put_by_again(seqs: Sequence[int]) -> Plan[None]:
    """A message that waits for its time to enter a stream is scheduled again. A sleeping worker checks if it is due."""
    now = yield from moment()
    yield from scheduled.put_by(seqs, now)
    yield Verb("schedules", "wake")


def cancel(seq: int) -> Plan[bool]:
    """End a message as cancelled. If a worker holds it, that worker is asked to cancel, and False is returned."""
    held = yield from hold(seq, leased=True)
    yield from spare_turns(held, "cancelled", f"`{INSTANCES} cancel` asks the instance to end")
    if held.lease is not None:
        if not (yield sql("op_ask_cancel", seq=held.lease[0], epoch=held.lease[1])):
            raise TargetChanged
        return False
    yield from end([seq], "cancelled")
    yield from let_go(held)
    return True


def end(seqs: Sequence[int], outcome: str) -> Plan[None]:
    """Move messages to the history. Discarded ones free their dedupe keys, others keep them for a while."""
    listed = list(seqs)
    yield from answer(listed, f"Cancelled: the message was {outcome} by an operator.", Reason.CANCELLED)
    yield sql("op_ended", seqs=listed, outcome=outcome, why=None)
    if outcome == "discarded":
        yield sql("op_dedupe_free", seqs=listed)
    else:
        yield sql("op_dedupe_end", seqs=listed)
    yield sql("op_delete", seqs=listed)


def spare_turns(held: Held, what: str, instead: str) -> Plan[None]:
    """Refuse a command that would take a message from an instance, which would wait for it for ever."""
    is_turn = held.queue is not None and names.is_versioned(held.queue)
    if is_turn or (held.queue == TIMER and (yield sql("op_of_instance", seq=held.seq, type=TURN_TIMER))):
        raise Refused(
            f"Message {held.id} belongs to instance {held.stream} of an orchestration and was not {what}: the "
            f"instance would wait for it for ever. {instead}."
        )


def spare_stream(queue: str, stream: str, what: str, instead: str) -> None:
    """The same for commands about the stream of an instance."""
    if names.is_versioned(queue):
        raise Refused(
            f"Stream {stream} of queue {queue} is an instance of an orchestration. {what}: {instead}."
        )


def answer(seqs: Sequence[int], error: str, reason: Reason, *, letters: bool = False) -> Plan[None]:
    """Answer the orchestrations that wait for these messages, in the same transaction.

    `letters`: they become dead letters; an instance that waits for a redrive (`on_dead="wait"`) keeps waiting.
    """
    rows = yield sql("op_replies", seqs=list(seqs))
    found = (
        replies.failed(as_id(id), headers, f"ended/{reason}", error, reason)
        for id, headers in rows
        if not (letters and replies.waits_for_letter(headers))
    )
    answers = [each for each in found if each is not None]
    if answers:
        yield from engine.append(answers)


def poison(seq: int, why: str, fingerprint: str | None = None) -> Plan[Held]:
    """Make a message a dead letter by hand, with reason 7; its stream continues. Returns the message."""
    held = yield from hold(seq)
    if held.queue is None or held.queue == TIMER:
        raise Refused(f"Message {held.id} is in no queue yet, so it cannot be poison: cancel it instead.")
    yield from spare_turns(held, "made a dead letter", f"`{INSTANCES} terminate` ends the instance")
    yield from answer([seq], f"PoisonMessage: {why}", Reason.POISON_MESSAGE, letters=True)
    yield Verb("operator", "bury", (seq, held.errors, why, fingerprint))
    yield sql("op_delete", seqs=[seq])
    yield from let_go(held)
    return held


def release(seq: int) -> Plan[None]:
    """Take a message out of the order of its stream; the messages behind it keep their order."""
    held = yield from hold(seq)
    yield from spare_turns(held, "released", f"`{INSTANCES} suspend` holds the instance, `terminate` ends it")
    if held.position is None:
        raise Refused(f"Message {held.id} is not in the order of a stream: it waits for no other message.")
    yield sql("op_leave_order", seq=seq)
    yield from let_go(held)


# -- streams


def set_aside(queue: str, stream: str) -> Plan[UUID]:
    """Take the head of a stream out of the order; returns it."""
    spare_stream(queue, stream, "Its head was not set aside", f"`{INSTANCES} terminate` ends it")
    opened, halted_by = yield from stream_row(queue, stream)
    if halted_by is not None:
        raise Refused(
            f"Stream {stream} of queue {queue} has no head to set aside, it is halted by {halted_by}: "
            "redrive that message, or resume the stream."
        )
    if opened == 0:
        raise NotFound(
            f"Nothing is in the order of stream {stream} of queue {queue}: there is nothing to set aside."
        )
    rows = yield sql("op_head", queue=queue, stream=stream)
    if not rows:
        raise TargetChanged
    held = yield from hold(rows[0][0])
    if not held.head or held.position is None:
        raise TargetChanged
    yield sql("op_leave_order", seq=held.seq)
    yield from let_go(held)
    return held.id


def halt(queue: str, stream: str, by: str) -> Plan[None]:
    """Halt a stream until it is resumed. Raises Refused while its head is leased, as in the model."""
    spare_stream(queue, stream, "It was not halted", f"`{INSTANCES} suspend` holds it")
    _, halted_by = yield from stream_row(queue, stream)
    if halted_by is not None:
        raise Refused(f"Stream {stream} of queue {queue} is halted already, by {halted_by}.")
    rows = yield sql("op_head", queue=queue, stream=stream)
    if rows:
        try:
            yield from hold(rows[0][0])
        except Refused as error:
            raise Refused(
                f"{error} To halt a busy stream, pause its queue first and resume it afterwards."
            ) from None
    if not (yield sql("op_stream_halt", queue=queue, stream=stream, by=by)):
        raise TargetChanged
    if rows:
        yield sql("op_demote", seq=rows[0][0])
    # A first message may have arrived after the head was read and before the row was locked.
    if (yield sql("op_head", queue=queue, stream=stream)):
        raise TargetChanged


def resume(queue: str, stream: str) -> Plan[bool]:
    """Let a halted stream continue with the first message of its order. False: it was not halted."""
    _, halted_by = yield from stream_row(queue, stream)
    if halted_by is None:
        return False
    first = yield from hold_first(queue, stream)
    if not (yield sql("op_stream_lift", queue=queue, stream=stream, by=None)):
        raise TargetChanged
    yield from still_first(queue, stream, first)
    yield from advance([(queue, stream, 0)])
    return True


@single
def still_first(queue: str, stream: str, first: int | None) -> Plan[None]:
    """With the stream's row locked: check that no message has arrived if the order was empty before."""
    rows = yield sql("op_first", queue=queue, stream=stream)
    if [seq for (seq,) in rows] != ([] if first is None else [first]):
        raise TargetChanged


@single
def stream_row(queue: str, stream: str) -> Plan[tuple[int, str | None]]:
    rows = yield sql("op_stream_row", queue=queue, stream=stream)
    if not rows:
        raise NotFound(
            f"There is no stream {stream} with pending messages in queue {queue}: `holdfast streams list` shows all."
        )
    return rows[0][0], rows[0][1]


# -- time


@single
def moment() -> Plan[datetime]:
    """The database's time."""
    ((value,),) = yield sql("op_moment")
    found: datetime = instant(value)
    return found


def ago(seconds: float) -> Plan[datetime]:
    """The moment so many seconds before now."""
    return (yield from moment()) - timedelta(seconds=seconds)
