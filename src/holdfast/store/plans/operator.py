"""What an operator may order, as plans written once for both databases.

An order about a message in the order of a stream holds the first message of that order (the head, unless the stream is
halted), then the message itself; only then, in a statement of its own, does it look whether a lease covers the message.
Nothing of the stream can be claimed or settled while the first one is held, and nothing comes back before it: a redrive
that does so holds it too. What leaves the order is counted out of the stream's row, and in yet another statement the
next one is promoted. Locks are taken in the order in which everybody takes them: messages with the first of a stream
before the others, leases, dedupe keys, stream rows. Every change raises the epoch of the message, and whatever becomes
claimable again is stamped now or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ...clock import from_micros
from ...errors import NotFound, Refused
from ..statement import Plan, Statement
from . import engine_sqlite as plans_sqlite
from .engine import Plans, sql
from .engine_postgres import PostgresPlans
from .engine_sqlite import TIMER

LOOKS = 5  # at a message that moves while it is looked at


class OrderMoved(Exception):
    """What the order is about changed while it was being given: it must be begun anew, in a new transaction."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that stands still as long as the transaction lasts. `lease` is set only for an order that takes it."""

    seq: int
    id: UUID
    queue: str | None
    stream: str | None
    position: int | None
    head: bool
    errors: Any
    lease: tuple[int, int] | None = None  # seq and epoch


# -- holding still


def hold(plans: Plans, seq: int, now: Any, *, leased: bool = False) -> Plan[Held]:
    """Lock a message and the first of its stream. Refused while a worker holds it; `leased` accepts its own lease."""
    for _ in range(LOOKS):
        rows = yield sql(plans, "op_look", seq=seq)
        if not rows:
            raise OrderMoved
        queue, stream, position = rows[0]
        first = None
        if position is not None:
            first = yield from hold_first(plans, queue, stream)
        rows = yield sql(plans, "op_lock", seq=seq)
        if not rows or (rows[0][1], rows[0][3]) != (queue, position):
            raise OrderMoved
        id, _, _, _, head, errors = rows[0]
        held = Held(seq, as_id(id), queue, stream, position, bool(head), errors)
        lease = yield sql(plans, "op_lease", seq=seq, first=first, position=position, now=now)
        if not lease:
            return held
        run, epoch, until, live, worker, run_id = lease[0]
        if not live:
            yield from plans.recover(now)
        elif leased and run == seq:
            return replace(held, lease=(run, epoch))
        else:
            raise Refused(
                in_hands(held.id, queue, worker, at(plans, until), None if run == seq else as_id(run_id))
            )
    raise OrderMoved


def hold_first(plans: Plans, queue: str, stream: str) -> Plan[int | None]:
    """Lock the first message in the order of a stream and make sure that it is the first; None: the order is empty."""
    rows = yield sql(plans, "op_lock_first", queue=queue, stream=stream)
    if not rows:
        return None
    seq, position = rows[0]
    # Whoever had it locked before may have been a redrive that put another one before it.
    if (yield sql(plans, "op_lower", queue=queue, stream=stream, position=position)):
        raise OrderMoved
    return int(seq)


def in_hands(id: UUID, queue: str | None, worker: str, until: datetime | None, run: UUID | None) -> str:
    lead = f"Message {id} in queue {queue} is leased by {worker} until {until:%Y-%m-%d %H:%M:%S} UTC"
    if run is not None:
        lead += f", handed out together with {run} of its stream"
    return f"{lead}: wait until it comes back, or stop that worker."


def let_go(plans: Plans, held: Held, now: Any) -> Plan[None]:
    """A message that was held has left the order of its stream, if it was in one: the next is promoted."""
    if held.position is not None:
        assert held.queue is not None
        assert held.stream is not None
        yield from advance(plans, [(held.queue, held.stream, 1)], now)


def advance(plans: Plans, streams: Sequence[tuple[str, str, int]], now: Any) -> Plan[None]:
    """Streams (queue, name, how many left the order) promote their first, unless they are halted.

    The stream's row is updated, not only locked: a producer with an older snapshot then gets an error instead of
    leaving its message behind.
    """
    if not streams:
        return
    if isinstance(plans, PostgresPlans):
        queues, names, removed = (list(each) for each in zip(*streams, strict=True))
        yield plans.sql(
            "op_advance", queue=queues, stream=names, removed=removed, start=[0] * len(names), now=now
        )
    else:
        text = plans_sqlite.encode([(*each, 0, None) for each in streams])
        yield plans_sqlite.sql("advance_streams", streams=text, now=now)
        yield plans_sqlite.sql("advance_promote", streams=text, now=now)


# -- messages


def retry(plans: Plans, seq: int, reset: bool, now: Any) -> Plan[None]:
    """A message is claimable now, when its turn comes; `reset` also forgets what it went through."""
    yield from hold(plans, seq, now)
    yield sql(plans, "op_retry", seqs=many(plans, [seq]), reset=reset, now=now)


def retry_heads(plans: Plans, seqs: Sequence[int], reset: bool, now: Any) -> Plan[set[int]]:
    """Of these messages, those that stand first and that nobody holds are claimable now; the answer names them.

    A head is the first of its stream itself, and no stream changes, so that many may be done in one transaction.
    """
    locked = [seq for (seq,) in (yield sql(plans, "op_lock_heads", seqs=many(plans, seqs)))]
    rows = yield sql(plans, "op_retry", seqs=many(plans, locked), reset=reset, now=now)
    return {seq for (seq,) in rows}


def park(plans: Plans, seq: int, now: Any) -> Plan[None]:
    """A message keeps its place and is not claimable."""
    yield from hold(plans, seq, now)
    yield sql(plans, "op_park", seq=seq)


def cancel(plans: Plans, seq: int, now: Any) -> Plan[bool]:
    """A message ends as cancelled; if a worker holds it, that one is asked (the answer is then False)."""
    held = yield from hold(plans, seq, now, leased=True)
    if held.lease is not None:
        if not (yield sql(plans, "op_ask_cancel", seq=held.lease[0], epoch=held.lease[1])):
            raise OrderMoved
        return False
    yield from end(plans, [seq], "cancelled", now)
    yield from let_go(plans, held, now)
    return True


def end(plans: Plans, seqs: Sequence[int], outcome: str, now: Any) -> Plan[None]:
    """Messages leave for the history; discarded ones free their dedupe keys, others hold them for a while."""
    listed = many(plans, seqs)
    yield sql(plans, "op_ended", seqs=listed, outcome=outcome, why=None, now=now)
    if outcome == "discarded":
        yield sql(plans, "op_dedupe_free", seqs=listed)
    else:
        yield sql(plans, "op_dedupe_end", seqs=listed, now=now)
    yield sql(plans, "op_delete", seqs=listed)


def poison(plans: Plans, seq: int, why: str, now: Any, fingerprint: str | None = None) -> Plan[Held]:
    """A message moves to the dead letters by hand, with reason 7; its stream goes on. The answer: what it was."""
    held = yield from hold(plans, seq, now)
    if held.queue is None or held.queue == TIMER:
        raise Refused(
            f"Message {held.id} is in nobody's queue yet, so it cannot be poison: cancel it instead."
        )
    if isinstance(plans, PostgresPlans):
        yield plans.sql("op_bury", seq=seq, why=why, fingerprint=fingerprint, keep=plans.errors_kept, now=now)
    else:
        known = plans_sqlite.decoded_errors(held.errors)
        known.append({"at": from_micros(now).isoformat(), "reason": 7, "text": why})
        errors = plans_sqlite.encode(known[-plans.errors_kept :])
        yield plans_sqlite.sql("op_bury", seq=seq, errors=errors, fingerprint=fingerprint, now=now)
    yield sql(plans, "op_delete", seqs=many(plans, [seq]))
    yield from let_go(plans, held, now)
    return held


def release(plans: Plans, seq: int, now: Any) -> Plan[None]:
    """A message leaves the order of its stream; what stood behind it keeps its order."""
    held = yield from hold(plans, seq, now)
    if held.position is None:
        raise Refused(f"Message {held.id} is not in the order of a stream: it waits for nobody.")
    yield sql(plans, "op_leave_order", seq=seq, now=now)
    yield from let_go(plans, held, now)


# -- streams


def set_aside(plans: Plans, queue: str, stream: str, now: Any) -> Plan[UUID]:
    """The head of a stream leaves the order; the answer names it."""
    opened, halted_by = yield from stream_row(plans, queue, stream)
    if halted_by is not None:
        raise Refused(
            f"Stream {stream} of queue {queue} has no head to set aside, it is halted by {halted_by}: "
            "redrive that message, or resume the stream."
        )
    if opened == 0:
        raise NotFound(
            f"Nothing is in the order of stream {stream} of queue {queue}: there is nothing to set aside."
        )
    rows = yield sql(plans, "op_head", queue=queue, stream=stream)
    if not rows:
        raise OrderMoved
    held = yield from hold(plans, rows[0][0], now)
    if not held.head or held.position is None:
        raise OrderMoved
    yield sql(plans, "op_leave_order", seq=held.seq, now=now)
    yield from let_go(plans, held, now)
    return held.id


def halt(plans: Plans, queue: str, stream: str, by: str, now: Any) -> Plan[None]:
    """Nothing of a stream is handed out until it is resumed. Refused while its head is leased, as in the model."""
    _, halted_by = yield from stream_row(plans, queue, stream)
    if halted_by is not None:
        raise Refused(f"Stream {stream} of queue {queue} is halted already, by {halted_by}.")
    rows = yield sql(plans, "op_head", queue=queue, stream=stream)
    if rows:
        try:
            yield from hold(plans, rows[0][0], now)
        except Refused as error:
            raise Refused(
                f"{error} To halt a busy stream, pause its queue first and resume it afterwards."
            ) from None
    if not (yield sql(plans, "op_stream_halt", queue=queue, stream=stream, by=by, now=now)):
        raise OrderMoved
    if rows:
        yield sql(plans, "op_demote", seq=rows[0][0])
    # A first message may have arrived between the look at the head and the hold of the row.
    if (yield sql(plans, "op_head", queue=queue, stream=stream)):
        raise OrderMoved


def resume(plans: Plans, queue: str, stream: str, now: Any) -> Plan[bool]:
    """A halted stream goes on with the first message of its order. False: it was not halted."""
    _, halted_by = yield from stream_row(plans, queue, stream)
    if halted_by is None:
        return False
    first = yield from hold_first(plans, queue, stream)
    if not (yield sql(plans, "op_stream_lift", queue=queue, stream=stream, by=None)):
        raise OrderMoved
    yield from still_first(plans, queue, stream, first)
    yield from advance(plans, [(queue, stream, 0)], now)
    return True


def still_first(plans: Plans, queue: str, stream: str, first: int | None) -> Plan[None]:
    """Under the stream's row: nobody has come since the first one was locked, when there was none."""
    rows = yield sql(plans, "op_first", queue=queue, stream=stream)
    if [seq for (seq,) in rows] != ([] if first is None else [first]):
        raise OrderMoved


def stream_row(plans: Plans, queue: str, stream: str) -> Plan[tuple[int, str | None]]:
    rows = yield sql(plans, "op_stream_row", queue=queue, stream=stream)
    if not rows:
        raise NotFound(
            f"There is no stream {stream} with pending messages in queue {queue}: `holdfast streams list` shows all."
        )
    return rows[0][0], rows[0][1]


# -- values


def ago(plans: Plans, seconds: float, now: Any) -> Plan[Any]:
    """The instant so long before now, as the database writes it."""
    ((moment,),) = yield sql(plans, "op_moment", now=now)
    return moment - (
        timedelta(seconds=seconds) if isinstance(plans, PostgresPlans) else round(seconds * 1_000_000)
    )


def many(plans: Plans, values: Sequence[object]) -> object:
    """A list as a parameter."""
    return list(values) if isinstance(plans, PostgresPlans) else plans_sqlite.encode(values)


def at(plans: Plans, value: Any) -> datetime | None:
    """An instant as the database writes it, for people."""
    return value if isinstance(plans, PostgresPlans) else plans_sqlite.when(value)


def as_id(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:  # SQLite keeps whatever it is given: it is shown as an id that nobody has
        return UUID(int=0)


def statement(plans: Plans, prefix: str, name: str, tail: str, **params: object) -> Statement:
    """A statement that begins with another one's common tables."""
    first, second = sql(plans, prefix), sql(plans, name, **params)
    return Statement(f"{first.sql}\n{second.sql}\n{tail}", second.params)
