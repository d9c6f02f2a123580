"""Speculative turns: the worker that ends an activity runs the next turn of its instance ahead, if it has it in memory.

The turn has no effects, so it may be dropped. It is handed in with the end of the activity as a `Guess`: the database
stores it if nothing waits in the stream and the instance stands where memory says, else it stores the answer as a
message. Which of them it was is not reported. The instance in memory has the mark of the guess; where another mark is
stored, the next turn replays the journal.

A turn is run ahead only for an instance that no parent waits for, and only if all it does is to ask for activities, to
withdraw timers, or to end with a result. Most of that is only known when it has run; an instance whose turn does more
is closed.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from ..clock import micros
from ..model.ids import new_id
from ..model.message import NewMessage
from ..model.replies import Reply
from ..model.work import Guess
from ..worker.interrupts import is_ctrl_c
from .flow import HeldLines
from .hosting import outside_tasks
from .journal import Answered, Timer
from .leaving import Leaving
from .outcome import Turn
from .place import Place
from .turn import Instance


async def foreseen(
    place: Place, activity: str, reply: Reply, answer: NewMessage, text: str, now: datetime
) -> Guess | None:
    """The turn that the answer of this activity makes, ready to be stored; None: the answer is sent as a message.

    `text`: the answer's value, as JSON. `now`: the database's time.
    """
    memory, key = place.memory, (reply.queue, activity)
    instance = memory.take_awaiting(reply.instance, reply.execution, reply.number, key)
    if instance is None:
        return None
    if place.length(instance.entries, instance.size) == "full":
        memory.keep(instance)
        return None
    arrival = Answered(str(answer.id), micros(now), reply.execution, reply.number, text)
    guess = None
    try:
        guess = await outside_tasks(lambda: _ahead(place, instance, arrival, answer, now))
    except BaseException as error:
        # The activity has succeeded. Whatever is wrong with the turn shows where it comes by its message.
        if isinstance(error, asyncio.CancelledError | GeneratorExit) or is_ctrl_c(error):
            raise
    finally:
        memory.skips.note(key, worked=guess is not None)
        if guess is None:
            instance.close()
        else:
            memory.keep(instance)
    return guess


def _ahead(
    place: Place, instance: Instance, arrival: Answered, answer: NewMessage, now: datetime
) -> Guess | None:
    was, before = instance.mark, (instance.entries, instance.size)
    with HeldLines() as lines:
        turn = instance.ahead(arrival, now)
    if turn is None or not is_plain(turn):
        return None
    leaving = Leaving(instance.queue, place.pen, place.activities)
    emits = leaving.emits(turn, None, now)
    if any(each.stream is not None or each.due_at is not None for each in emits):
        return None
    mark = new_id()
    instance.mark = str(mark)
    (row,) = leaving.delta(turn, mark).rows
    place.warn_if_long(instance.queue, turn, before)
    lines.release()
    return Guess(answer, was, row, tuple(emits))


def is_plain(turn: Turn) -> bool:
    """Whether it does nothing but what may be decided in the database together with the end of the activity."""
    if turn.end is not None and turn.end.state != "completed":
        return False
    if turn.parked or turn.unparked or not turn.row.entries:
        return False
    return all(isinstance(each.command, Timer) for each in turn.withdrawn)
