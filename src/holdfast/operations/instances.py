"""Why an instance of an orchestration is in its state: the chain of what it waits for, most specific cause first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from ..clock import from_micros
from ..errors import BodySealed
from ..model.progress import Progress
from ..model.text import counted
from ..model.work import INSTANCE
from ..orchestrations.journal import (
    Call,
    Child,
    Inline,
    JournalUnreadable,
    Row,
    Signalled,
    Timer,
    Tried,
    decode,
    merged,
    message_id,
)
from ..orchestrations.leaving import Result, journal_text
from ..orchestrations.messages import Pen, progress_name
from ..orchestrations.waiting import Waited, open_commands
from ..store.plans import instances
from ..store.plans.instances import Shown
from ..store.plans.operator import moment
from . import explain
from .desk import Desk
from .queues import Queues
from .results import clock
from .streams import Streams

DEPTH = 5  # levels of children that are shown
SHOWN = 10  # of the things it waits for
LOOKED_AT = 500  # calls whose progress is looked for


def why_instance(desk: Desk, id: str, depth: int = 0) -> list[str] | None:
    """Sentences about an instance; None if no instance has this id."""
    shown = desk.ask(instances.show(id))
    if shown is None:
        return None
    at = desk.ask(moment())
    name = f"Instance {id} of {shown.queue}"
    if shown.ended_at is not None:
        ended = [f"{name} {_ended(shown.state)} at {clock(shown.ended_at, at)}, after {_turns(shown)}."]
        return ended + (
            _failure(desk, shown) if shown.trouble is None else _poison(desk, shown, shown.trouble)
        )
    sentences = [f"{name} runs since {clock(shown.started_at, at)}; {_turns(shown)} stored."]
    sentences += _held(shown)
    sentences += _next_message(desk, shown)
    sentences += _waits(desk, shown, at, depth)
    return sentences


def _ended(state: str) -> str:
    return state if state in ("completed", "failed") else f"was {state}"


def _failure(desk: Desk, shown: Shown) -> list[str]:
    """The error of an instance that has ended without a result."""
    if shown.result is None:
        return []
    try:
        text = Pen(desk.keys).open(f"result/{shown.id}", shown.result)
    except BodySealed as error:
        return [] if shown.state == "completed" else [f"Its error cannot be read: {error}"]
    failure = msgspec.json.decode(text, type=Result).failure
    return [] if failure is None else [f"Its error: {failure}"]


def _held(shown: Shown) -> list[str]:
    """Why it is held, if it is: the first line is the reason, the other lines are the difference."""
    first = (shown.trouble or "").partition("\n")[0].rstrip(".")
    if shown.state == "paused":
        return [
            f"Paused: {first}. After a fix, `holdfast orchestrations resume {shown.id}` lets it continue."
        ]
    if shown.state == "suspended":
        return [
            f"Suspended by an operator: {first}. `holdfast orchestrations resume {shown.id}` lets it continue."
        ]
    return [f"It waits, because its code has changed: {first}"] if first else []


def _poison(desk: Desk, shown: Shown, trouble: str) -> list[str]:
    """Why an instance failed although its code raised no error."""
    sentences = [trouble.splitlines()[0]]
    found = Streams(desk).list(queue=shown.queue, stream=shown.id, limit=1)
    if found and found[0].halted_by is not None:
        sentences.append(
            f"Message {found[0].halted_by} is a dead letter. After a fix, `holdfast dead redrive {found[0].halted_by}` "
            "opens the instance again; its parent or caller has already received the failure."
        )
    return sentences


def _turns(shown: Shown) -> str:
    return counted(shown.turn, "turn")


def _next_message(desk: Desk, shown: Shown) -> list[str]:
    """The messages in its stream, and whether a worker takes them."""
    sentences: list[str] = []
    found = Streams(desk).list(queue=shown.queue, stream=shown.id, limit=1)
    if found and found[0].halted_by is not None:
        if not found[0].halted_by.startswith(INSTANCE):
            sentences.append(f"Its stream is halted by {found[0].halted_by}.")
    elif found and found[0].head is not None:
        sentences += [f"Its next message: {each}" for each in explain.why(desk, found[0].head)]
    queue = Queues(desk).state(shown.queue)
    if queue is not None and not queue.workers:
        sentences.append(f"No live worker has {shown.queue}.")
    return sentences


def _waits(desk: Desk, shown: Shown, at: datetime, depth: int) -> list[str]:
    try:
        rows = journal_rows(desk, shown.id, shown.execution)
        waited = open_commands(merged(rows))
    except (BodySealed, JournalUnreadable) as error:
        return [f"What it waits for cannot be read: {error}"]
    if not waited:
        sentences = ["It waits for no activity, timer or child: for a signal, or for its next message."]
        return sentences + _signals(rows)
    sentences = []
    tried = {each.number: each for each in rows[-1].tried} if rows else {}
    for number, command in list(waited.items())[:SHOWN]:
        if isinstance(command, Inline):
            sentences.append(_inline(f"{command.name}#{number}", tried.get(number), at))
        else:
            sentences += _wait(desk, shown, number, command, at, depth)
    if len(waited) > SHOWN:
        sentences.append(f"It waits for {len(waited) - SHOWN} more.")
    if all(isinstance(each, Timer) for each in waited.values()):  # a signal may be what ends the wait
        sentences += _signals(rows)
    return sentences


def _signals(rows: Iterable[Row]) -> list[str]:
    """The signals that have come: the journal does not say which of them the code waits for, or has taken."""
    names: dict[str, None] = {}
    for row in rows:
        names |= {each.name: None for each in (() if row.begin is None else row.begin.carried)}
        names |= {each.arrival.name: None for each in row.entries if isinstance(each.arrival, Signalled)}
    if not names:
        return []
    last = list(names)[-SHOWN:]
    return [f"Signals that have come so far: {', '.join(map(repr, last))}."]


def _inline(name: str, tried: Tried | None, at: datetime) -> str:
    """An inline activity has no message that could be looked up."""
    if tried is None:
        return f"It runs {name} inline, inside its turn."
    failed = f"has failed {counted(tried.attempts, 'time')}"
    if tried.due is None:
        return f"It runs {name} inline, inside its turn; it {failed}."
    due = clock(from_micros(tried.due), at)
    return f"It waits for {name}, which runs inline and {failed}: its next attempt is due at {due}."


def _wait(desk: Desk, shown: Shown, number: int, command: Waited, at: datetime, depth: int) -> list[str]:
    match command:
        case Timer(due=due):
            return [f"It waits for a timer until {clock(from_micros(due), at)}."]
        case Call(name=name):
            lead = f"It waits for {name}#{number}"
            message = message_id(shown.id, shown.execution, number)
            sentences = [f"{lead}: {each}" for each in explain.why(desk, message)]
            found = progress_of(desk, shown, {number: command}).get(number)
            return (
                sentences if found is None else [*sentences, f"{name}#{number} says how far it is: {found}."]
            )
        case Child(id=child):
            lead = f"It waits for its child {child}"
            if depth >= DEPTH:
                return [f"{lead}."]
            return [f"{lead}: {each}" for each in why_instance(desk, child, depth + 1) or ["there is none."]]


def progress_of(desk: Desk, shown: Shown, waited: Mapping[int, Waited]) -> dict[int, Progress]:
    """The progress of the calls that run now, by their numbers. Sealed progress without a key is left out."""
    calls = [number for number, command in waited.items() if isinstance(command, Call)][:LOOKED_AT]
    by_id = {message_id(shown.id, shown.execution, number): number for number in calls}
    pen, found = Pen(desk.keys), {}
    for id, text in desk.ask(instances.progress(list(by_id))).items() if by_id else ():
        try:
            found[by_id[id]] = msgspec.json.decode(pen.open(progress_name(id), text), type=Progress)
        except (BodySealed, msgspec.DecodeError):
            continue
    return dict(sorted(found.items()))


def journal_rows(desk: Desk, id: str, execution: int) -> list[Row]:
    """The journal of an execution, opened and read."""
    return read_rows(Pen(desk.keys), id, execution, desk.ask(instances.journal(id, execution)))


def read_rows(pen: Pen, id: str, execution: int, rows: Iterable[tuple[int, int, str]]) -> list[Row]:
    return [
        decode(id, execution, turn, part, pen.open(journal_text(id, execution, turn, part), text))
        for turn, part, text in rows
    ]
