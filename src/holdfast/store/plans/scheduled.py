"""Scheduled messages: what is due in more than a minute, or enters a stream later, waits in a table beside `message`.

The tick brings it over when it is due. A command about a scheduled message takes it back into `message`, does what it
does with any message, and puts by what still waits for its time. So no other plan has to know both tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ..statement import Plan, Verb, single, statements
from ..values import BEGINNING, instant

sql = statements("scheduled")

SOON = timedelta(minutes=1)  # what is due within it is stored in `message`, but for what enters a stream
LEFT_MAX = 500


class Brought(NamedTuple):
    """What was brought over: how many, the time of the last, and the queues that got something."""

    did: int
    last: datetime | None = None
    queues: tuple[str, ...] = ()


@single
def first(since: datetime | None) -> Plan[tuple[datetime | None, datetime]]:
    """When the first is due, and the time. `since`: what is due earlier is not looked at."""
    ((at, now),) = yield sql("scheduled_first", since=since or BEGINNING)
    return instant(at), instant(now)


def bring(limit: int, size: int, since: datetime | None = None) -> Verb[Brought]:
    """Bring over what is due, the oldest first: so many, and so many bytes of bodies."""
    return Verb("scheduled", "bring", (limit, size, since), is_alone=True)


@single
def is_left() -> Plan[bool]:
    """Whether `message` has a timer: of an older release, which stored them there."""
    return bool((yield sql("timer_left")))


def take_in() -> Plan[int]:
    """Put by what an older release stored as timers in `message`, a part of it; returns how many there were."""
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
    """Put by those of these messages that are due later than soon, or wait for their time to enter a stream."""
    yield from _put_by(list(seqs), now + SOON)


def _put_by(seqs: list[int], soon: datetime) -> Plan[None]:
    if seqs:
        yield sql("put_by", seqs=seqs, soon=soon)
        yield sql("put_by_gone", seqs=seqs)
