"""Scheduled messages: those due in more than a minute, or that enter a stream later, are in a table beside `message`.

The tick brings them over when they are due. A command about a scheduled message takes it back into `message`, does what
it does with any message, and then stores it in `scheduled` again if its time has not come. So only this module knows
both tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ..statement import Plan, Verb, single, statements
from ..values import BEGINNING, instant

sql = statements("scheduled")

SOON = timedelta(minutes=1)  # messages due within it are stored in `message`, unless they enter a stream
LEFT_MAX = 500


class Brought(NamedTuple):
    """The result of bringing over: how many, the time of the last, and the queues that got something."""

    did: int
    last: datetime | None = None
    queues: tuple[str, ...] = ()


@single
def first(since: datetime | None) -> Plan[tuple[datetime | None, datetime]]:
    """When the first is due, and the time. `since`: messages due earlier are not searched."""
    ((at, now),) = yield sql("scheduled_first", since=since or BEGINNING)
    return instant(at), instant(now)


def bring(limit: int, size: int, since: datetime | None = None) -> Verb[Brought]:
    """Bring over due messages, the oldest first: at most so many, and so many bytes of bodies."""
    return Verb("scheduled", "bring", (limit, size, since), is_alone=True)


@single
def is_left() -> Plan[bool]:
    """Whether `message` has a timer: an older release stored scheduled messages there."""
    return bool((yield sql("timer_left")))


def take_in() -> Plan[int]:
    """Move a part of the timers that an older release stored in `message` to `scheduled`; returns how many."""
    seqs = [seq for (seq,) in (yield sql("timers_left", limit=LEFT_MAX))]
    yield from _put_by(seqs, BEGINNING)
    return len(seqs)


# -- for commands


def recall(seqs: Sequence[int]) -> Plan[list[int]]:
    """Take those of these messages that are scheduled back into `message`; returns them."""
    return (yield from _recall([seq for (seq,) in (yield sql("scheduled_lock", seqs=list(seqs)))]))


def recall_ids(ids: Sequence[UUID]) -> Plan[list[int]]:
    """The same for all deliveries of messages."""
    return (yield from _recall([seq for (seq,) in (yield sql("scheduled_of", ids=[str(id) for id in ids]))]))


def recall_queue(queue: str, limit: int) -> Plan[list[int]]:
    """The same for the next so many of a queue."""
    return (yield from _recall([seq for (seq,) in (yield sql("scheduled_batch", queue=queue, limit=limit))]))


def _recall(seqs: list[int]) -> Plan[list[int]]:
    if seqs:
        yield sql("recall", seqs=seqs)
        yield sql("recalled", seqs=seqs)
    return seqs


def put_by(seqs: Sequence[int], now: datetime) -> Plan[None]:
    """Move those of these messages to `scheduled` that are due later than soon, or wait to enter a stream."""
    yield from _put_by(list(seqs), now + SOON)


def _put_by(seqs: list[int], soon: datetime) -> Plan[None]:
    if seqs:
        yield sql("put_by", seqs=seqs, soon=soon)
        yield sql("put_by_gone", seqs=seqs)
