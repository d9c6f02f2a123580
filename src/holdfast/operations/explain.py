"""Why a message is in its state, in sentences: one for each delivery, the most specific cause first."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ..errors import BodySealed
from ..model.message import Reason
from ..model.text import counted
from ..model.work import INSTANCE
from ..store.plans import queries
from ..store.plans.operator import moment
from ..store.plans.rows import TIMER
from . import from_rows, gates, wire
from .desk import Desk
from .incident import paused_by
from .queues import Queues
from .results import OPERATOR, Delivery, Ended, Letter, clock
from .states import QueueState, StreamState
from .streams import Streams

AHEAD_MAX = 10_000
ERROR_CHARS = 300


def why(desk: Desk, id: UUID) -> list[str]:
    """Sentences about the deliveries of a message: pending ones, dead ones, ended ones."""
    at = desk.ask(moment())
    assert at is not None
    pending, dead, ended = desk.ask(queries.show(id))
    lines = [_pending(desk, from_rows.delivery(row), at) for row in pending]
    several = len({row["due_at"] or row["created_at"] for row in (*pending, *dead)}) > 1
    lines += [_dead(from_rows.letter(row), at, several) for row in dead]
    if several:
        numbers = [row["seq"] for row in (*pending, *dead)]
        lines = [
            f"Number {number}: {text[0].lower()}{text[1:]}"
            for number, text in zip(numbers, lines, strict=True)
        ]
        lines.insert(0, f"Several messages have the id {id}; commands take --number, too.")
    lines += wire.received((*pending, *dead))
    lines += [_ended(desk, from_rows.ended(row, id), at) for row in ended]
    if not lines:
        days = desk.settings.history / 86_400
        return [
            f"Unknown: no message {id} is pending or dead, and none ended within the {days:g} days of the history."
        ]
    return lines


def _pending(desk: Desk, each: Delivery, at: datetime) -> str:
    stream = None
    if each.queue is not None and each.stream is not None and each.position is not None:
        found = Streams(desk).list(queue=each.queue, stream=each.stream, limit=1)
        stream = found[0] if found else None
    causes = [_cause(desk, each, stream, at)]
    queue = None
    if each.queue not in (None, TIMER) and each.state not in ("leased", "unrouted"):
        queue = Queues(desk).state(str(each.queue))
    if queue is not None:
        broken, perhaps = gates.broken(desk, each, at)
        outer = _of_queue(desk, queue, at) + broken
        # A message that is ready waits only for its queue, so the queue's cause comes first.
        if each.state == "ready":
            causes = outer or causes + gates.busy(desk, queue, at)
        else:
            causes += outer
        causes += perhaps + wire.waits(desk, queue.name, each.error, at)
    text = " ".join(causes)
    return f"In queue {each.queue}: {text[0].lower()}{text[1:]}" if each.queue is not None else text


def _of_queue(desk: Desk, queue: QueueState, at: datetime) -> list[str]:
    lines = []
    if queue.paused_at is not None:
        who = paused_by(desk, queue.name)
        by = f" by {who}" if who else ""
        because = f" ({queue.paused_why})" if queue.paused_why else ""
        lines.append(f"Queue {queue.name} is paused since {clock(queue.paused_at, at)}{by}{because}.")
    if not queue.workers:
        lines.append(f"No live worker takes from queue {queue.name}.")
    return lines


def _cause(desk: Desk, each: Delivery, stream: StreamState | None, at: datetime) -> str:
    match each.state:
        case "unrouted":
            return (
                f"Unrouted since {clock(each.created_at, at)}: nobody subscribes to {each.type}; "
                "the first one that does gets it."
            )
        case "leased":
            with_head = ""
            if stream is not None and stream.head is not None and stream.head != each.id:
                with_head = f", in a run with {stream.head}"
            return f"Leased by {each.worker} until {clock(each.until, at)} (attempt {each.attempts + 1}{with_head})."
        case "parked":
            return f"Parked: it waits until an operator says `holdfast messages retry {each.id}`."
        case "waiting" | "blocked":
            return _behind(each, stream, at)
        case "suspect":
            return _suspect(each, at)
        case "scheduled" if each.refunds and (each.error or "").startswith(BodySealed.__name__):
            hint = (each.error or "").partition(": ")[2]
            return f"Held until {clock(each.claimable_at, at)}, no attempt counted. {hint}"
        case "scheduled":
            enters = f"; it enters stream {each.stream} then" if each.queue == TIMER else ""
            return f"Scheduled until {clock(each.claimable_at, at)}{enters}."
        case "retrying":
            return f"Retry {each.failures} at {clock(each.claimable_at, at)} after {_failure(each.reason, each.error)}."
        case "ready":
            return _ready(desk, each, at)


def _behind(each: Delivery, stream: StreamState | None, at: datetime) -> str:
    if stream is None:
        return f"Waits for its turn in stream {each.stream}."
    if stream.halted_by is not None:
        since = f"since {clock(stream.halted_at, at)}"
        if stream.halted_by.startswith(OPERATOR):
            because = stream.halted_by.removeprefix(OPERATOR)
            return f"Waits: stream {stream.stream} is halted by an operator {since} ({because}); resume the stream."
        if stream.halted_by.startswith(INSTANCE):
            state = stream.halted_by.removeprefix(INSTANCE)
            return (
                f"Waits: instance {stream.stream} is {state} {since}; `holdfast why {stream.stream}` says why, "
                f"`holdfast orchestrations resume {stream.stream}` lets it continue."
            )
        return (
            f"Waits: stream {stream.stream} is halted by dead letter {stream.halted_by} {since}; "
            "redrive that message or resume the stream."
        )
    lead = f"Waits for {stream.head} of stream {stream.stream}"
    match stream.state:
        case "leased":
            return f"{lead}, which is leased by {stream.worker} until {clock(stream.until, at)}."
        case "parked":
            return f"{lead}, which is parked: retry it, or set it aside."
        case "suspect":
            return f"{lead}, a suspect that waits for the quarantine: its last hand-over never came back."
        case "retrying":
            until = clock(stream.claimable_at, at)
            return f"{lead} until {until}: its retry {stream.failures} after {_failure(stream.reason, stream.error)}."
        case "scheduled":
            return f"{lead} until {clock(stream.claimable_at, at)}: it is scheduled."
        case _:
            return f"{lead}, which is ready."


def _suspect(each: Delivery, at: datetime) -> str:
    if each.until is not None:
        lapsed = clock(each.until, at)
        return f"The lease of {each.worker} lapsed at {lapsed}: the next worker that looks takes it over."
    times = "last hand-over" if each.vanished == 1 else f"last {each.vanished} hand-overs"
    return f"Suspect: its {times} never came back, so it waits for the quarantine of a worker."


def _ready(desk: Desk, each: Delivery, at: datetime) -> str:
    ahead = desk.ask(queries.ahead(each.seq, AHEAD_MAX))
    since = f"Ready since {clock(each.claimable_at, at)}"
    if ahead == 0:
        return f"{since}: it is the next one of its queue."
    many = f"more than {AHEAD_MAX - 1}" if ahead >= AHEAD_MAX else str(ahead)
    return f"{since}: {many} older {'message is' if ahead == 1 else 'messages are'} ahead of it."


def _dead(each: Letter, at: datetime, several: bool) -> str:
    last = (
        "" if each.last_reason in (None, each.reason) else f" (the last failure: {words(each.last_reason)})"
    )
    halts = f" Stream {each.stream} is halted until then." if each.halts else ""
    meant = f"{each.id} --number {each.seq}" if several else f"{each.id}"
    way = f"`holdfast dead redrive {meant}` brings it back"
    if each.held_at is not None:
        held = f"held since {clock(each.held_at, at)} ({each.held_why})"
        way = f"{held}: first `holdfast dead unhold {meant}`, then {way}"
    error = f" Its error: {each.error.rstrip('.')}." if each.error else ""
    return (
        f"In queue {each.queue}: dead since {clock(each.died_at, at)}, {words(each.reason)}{last}, after "
        f"{counted(each.starts, 'attempt')}; {way}.{error}{halts}"
    )


def _ended(desk: Desk, each: Ended, at: datetime) -> str:
    lead = f"In queue {each.queue}: " if each.queue else "Unrouted: "
    if (sent := wire.sent(desk, each, at)) is not None:
        return f"{lead}{sent}"
    after = f" after {counted(each.attempts, 'attempt')}" if each.outcome == "done" else ""
    if each.outcome == "archived":
        after = f"; `holdfast dead restore {each.why}` brings it back"
    elif each.why:
        after = f": {each.why}"
    came = f" It was received as {each.origin}." if each.origin else ""
    return f"{lead}{each.outcome} at {clock(each.ended_at, at)}{after}.{came}"


def _failure(reason: Reason | None, error: str | None) -> str:
    """The reason and the first line of the error."""
    first = (error or "").partition("\n")[0].rstrip(".")
    short = first if len(first) <= ERROR_CHARS else f"{first[: ERROR_CHARS - 1]}…"
    return f"{words(reason)}: {short}" if short else words(reason)


def words(reason: Reason | None) -> str:
    return "an unknown reason" if reason in (None, Reason.UNKNOWN) else reason.name.replace("_", " ").lower()
