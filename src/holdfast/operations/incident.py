"""What is wrong now and what to do next: the problems in `status` and `doctor`, which also set exit codes.

Everything here comes from a bounded number of statements, so the page stays fast in an incident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ..model.message import Reason
from ..model.text import counted
from ..model.work import INSTANCE
from ..rules.breaker import State
from ..rules.fingerprint import fingerprint
from ..store.plans import audit, queries
from ..store.plans import dead_queries as letters
from . import from_rows
from .breakers import BreakerState
from .desk import Desk
from .results import Finding, Letter, clock, lasting
from .states import QueueState, StreamState, Unrouted, WorkerState
from .streams import POISON_ATTEMPTS

LATE_SECONDS = 300.0
BLOCKED_SECONDS = 3600.0
STUCK_ATTEMPTS = 3  # of a head; fewer are normal
MANY_RETRIES = 100  # messages that wait after one error; fewer are shown, and are not yet a problem
ERROR_CHARS = 200
CAUSES_SHOWN, SAMPLE, QUEUES_SAMPLED, PAUSED_SHOWN = 5, 1000, 5, 20


@dataclass(frozen=True, slots=True)
class Tripped:
    """A breaker that is open or half open. `queues`: whose handlers need it; None: only the application knows that.

    `held` is how many messages wait in those queues.
    """

    name: str
    state: str
    is_forced: bool  # by an operator
    since: datetime | None
    until: datetime | None  # of the next trial
    why: str | None
    queues: tuple[str, ...] | None
    held: int | None


@dataclass(frozen=True, slots=True)
class Paused:
    """A queue that is paused: since when, by whom and why, and how many messages wait in it."""

    queue: str
    since: datetime
    who: str | None
    why: str | None
    depth: int


@dataclass(frozen=True, slots=True)
class Cause:
    """An error that is frequent now, in dead letters or in messages that wait for a retry.

    `fingerprint` is that of dead letters; messages that wait for a retry have none yet.
    `is_exact` is false where `count` is an estimate from the messages of a queue that are retried next.
    """

    fingerprint: str | None
    where: str  # dead, retrying
    queue: str
    reason: Reason | None
    error: str | None
    count: int
    is_exact: bool
    id: UUID  # one of them


@dataclass(frozen=True, slots=True)
class Deaths:
    """Dead letters that died within a day and are still there, and the number from which that is a problem."""

    count: int
    limit: float


@dataclass(frozen=True, slots=True)
class Status:
    """The whole state on one page. `ended` counts the outcomes of the last minute; `problems` make it unhealthy."""

    at: datetime
    queues: tuple[QueueState, ...]
    states: Mapping[str, int]
    depth: int
    dead: int
    oldest_at: datetime | None
    oldest_age: float | None
    blocked: tuple[StreamState, ...]
    workers: tuple[WorkerState, ...]
    ended: Mapping[str, int]
    unrouted: tuple[Unrouted, ...]
    breakers: tuple[Tripped, ...]
    paused: tuple[Paused, ...]
    causes: tuple[Cause, ...]
    problems: tuple[Finding, ...]
    more: tuple[str, ...] = ()  # states that were counted up to a limit: there are at least so many
    overdue_requests: int = 0  # their deadline has passed, and no worker has swept them
    late_requests: int = 0  # a late result came that nobody has accepted


# -- looking


def tripped(desk: Desk, queues: Sequence[QueueState], breakers: Sequence[BreakerState]) -> list[Tripped]:
    """Breakers that are not closed, and what they hold back."""
    depth = {each.name: each.depth for each in queues}
    needs: dict[str, set[str]] = {}
    for queue in {*depth, *(each.queue for each in desk.handlers)}:
        handler = desk.handlers.get(queue)
        breaker = None if handler is None else handler.limits(queue).breaker
        if breaker is not None:
            needs.setdefault(breaker.name, set()).add(queue)
    return [
        _tripped(each, needs.get(each.name, set()) if len(desk.handlers) else None, depth)
        for each in breakers
        if each.state is not State.CLOSED
    ]


def _tripped(each: BreakerState, needed_by: set[str] | None, depth: Mapping[str, int]) -> Tripped:
    held = None if needed_by is None else sum(depth.get(name, 0) for name in needed_by)
    queues = None if needed_by is None else tuple(sorted(needed_by))
    since = each.opened_at or each.changed_at
    return Tripped(each.name, each.state.value, each.forced, since, each.until, each.why, queues, held)


def paused(desk: Desk, queues: Sequence[QueueState]) -> list[Paused]:
    """Queues that are paused, and who paused them, if the audit still has it."""
    found = []
    for queue in [each for each in queues if each.paused_at is not None][:PAUSED_SHOWN]:
        assert queue.paused_at is not None
        who = paused_by(desk, queue.name)
        found.append(Paused(queue.name, queue.paused_at, who, queue.paused_why, queue.depth))
    return found


def paused_by(desk: Desk, queue: str) -> str | None:
    """Who paused a queue last, if the audit still has it."""
    rows = desk.ask(
        audit.find(who=None, action="queues.pause", queue=queue, target=None, since=None, limit=1)
    )
    return rows[0]["who"] if rows else None


def causes(desk: Desk, queues: Sequence[QueueState]) -> list[Cause]:
    """The most frequent errors: of the newest dead letters, and of the next retries."""
    found = _dead_causes(desk) if any(each.dead for each in queues) else []
    retrying = sorted(queues, key=lambda each: -each.states.get("retrying", 0))[:QUEUES_SAMPLED]
    for queue in retrying:
        if total := queue.states.get("retrying", 0):
            found += _retrying_causes(desk, queue.name, total)
    return sorted(found, key=lambda each: (-each.count, each.where, each.queue))[:CAUSES_SHOWN]


def deaths(desk: Desk, at: datetime, queues: Sequence[QueueState]) -> Deaths:
    """Dead letters of the last day. The limit is that of the alert."""
    limit = desk.settings.alert_dead
    if sum(each.dead for each in queues) < limit:
        return Deaths(0, limit)
    return Deaths(desk.ask(letters.count(died_after=at - timedelta(days=1))), limit)


def _dead_causes(desk: Desk) -> list[Cause]:
    rows = desk.ask(letters.letters(newest=True, limit=SAMPLE))
    newest: dict[tuple[str | None, str], Letter] = {}
    counts: Counter[tuple[str | None, str]] = Counter()
    for each in map(from_rows.letter, rows):
        key = each.fingerprint, each.queue
        newest.setdefault(key, each)
        counts[key] += 1
    found = []
    for (cause, queue), count in counts.most_common(CAUSES_SHOWN):
        one, total = newest[cause, queue], count
        if len(rows) == SAMPLE and cause is not None:  # there are more: the index of causes counts them
            total = desk.ask(letters.count(fingerprint=cause, queue=queue))
        reason = one.last_reason or one.reason
        found.append(Cause(cause, "dead", queue, reason, one.error, total, True, one.id))
    return found


def _retrying_causes(desk: Desk, queue: str, total: int) -> list[Cause]:
    rows = desk.ask(queries.retrying(queue))
    seen: dict[str, tuple[Reason | None, str, UUID]] = {}
    counts: Counter[str] = Counter()
    for number, error, id in rows:
        reason = from_rows.reason_of(number)
        name = fingerprint(error or "", reason or Reason.UNKNOWN)
        seen.setdefault(name, (reason, error or "", id))
        counts[name] += 1
    share = total / len(rows) if len(rows) and total > len(rows) else 1.0
    return [
        Cause(
            None,
            "retrying",
            queue,
            seen[name][0],
            seen[name][1],
            round(count * share),
            share == 1.0,
            seen[name][2],
        )
        for name, count in counts.most_common(CAUSES_SHOWN)
    ]


# -- judging


def late(at: datetime, since: datetime | None, seconds: float = LATE_SECONDS) -> bool:
    return since is not None and at - since > timedelta(seconds=seconds)


def problems(
    at: datetime,
    queues: Sequence[QueueState],
    workers: Sequence[WorkerState],
    blocked: Sequence[StreamState],
    unrouted: Sequence[Unrouted],
    breakers: Sequence[Tripped],
    causes: Sequence[Cause],
    deaths: Deaths,
    loops: int,
    flows: Sequence[Finding],
    is_app_known: bool,
) -> list[Finding]:
    """The problems, the most urgent first. A few dead letters are not a problem: failures are meant to end there."""
    anybody = any(each.is_alive for each in workers)
    return [
        *(_breaker(each, at) for each in breakers),
        *_workers(at, queues, workers),
        *(_failing(each) for each in causes if each.where == "retrying" and each.count >= MANY_RETRIES),
        *_deaths(deaths, causes),
        *(found for queue in queues for found in _orphaned(queue, is_app_known)),
        *(found for queue in queues for found in _queue(at, queue, anybody)),
        *flows,
        *(found for stream in blocked if (found := _stream(at, stream)) is not None),
        *_loops(loops),
        *(_unrouted(each) for each in unrouted),
    ]


def waiting(count: int, *, more: bool = False) -> str:
    """`more`: there are at least so many."""
    return f"{'at least ' if more else ''}{counted(count, 'message')} {'waits' if count == 1 else 'wait'}"


def _warning(name: str, text: str, remedy: str) -> Finding:
    return Finding("warning", name, text, remedy)


def _breaker(each: Tripped, at: datetime) -> Finding:
    because = f" ({each.why})" if each.why else ""
    since = f" since {clock(each.since, at)}" if each.since is not None else ""
    if each.queues is None:
        holds = "only the application knows which queues need it: ask with -a MODULE:APP"
    elif not each.queues:
        holds = "no handler names it, so it only refuses calls"
    else:
        names = f"queue{'s' if len(each.queues) > 1 else ''} {', '.join(each.queues)}"
        holds = f"it holds back {names}, in which {waiting(each.held or 0)}"
    if each.is_forced:
        remedy = (
            f"An operator opened it: `holdfast breakers reset {each.name}` returns it to automatic operation."
        )
    else:
        remedy = "It tries again by itself; repair the dependency. `holdfast breakers list` says when."
    state = each.state.replace("_", " ")
    return _warning("breaker-open", f"Breaker {each.name} is {state}{since}{because}: {holds}.", remedy)


def _workers(at: datetime, queues: Sequence[QueueState], workers: Sequence[WorkerState]) -> Iterator[Finding]:
    silent = [each for each in workers if not each.is_alive]
    if not any(each.is_alive for each in workers):
        depth, more = sum(each.depth for each in queues), any(each.more for each in queues)
        if depth:
            seen = f": the last was seen at {clock(silent[0].seen_at, at)}" if silent else ""
            yield _warning(
                "no-worker",
                f"No worker is running, and {waiting(depth, more=more)}{seen}.",
                "Start one: `holdfast worker MODULE:APP`.",
            )
    for each in silent:
        if each.leases:
            yield _warning(
                "silent-worker",
                f"Worker {each.name} has not been seen since {clock(each.seen_at, at)} and holds "
                f"{counted(each.leases, 'message')}.",
                "It was killed, is stopped, or cannot reach the database. Another worker takes over what it holds.",
            )


def _failing(each: Cause) -> Finding:
    about = "" if each.is_exact else "About "
    return _warning(
        "failing",
        f"{about}{each.count:,} messages of queue {each.queue} wait for a retry after the same error: {_first(each)}.",
        f"`holdfast why --verbose {each.id}` shows where. Repair it, then "
        f"`holdfast messages retry --all -q {each.queue}`.",
    )


def _deaths(deaths: Deaths, causes: Sequence[Cause]) -> Iterator[Finding]:
    if deaths.count < deaths.limit:
        return
    most = next((each for each in causes if each.where == "dead"), None)
    text = f"{deaths.count:,} messages became dead letters within a day and are still there"
    if most is None:
        yield _warning("many-deaths", f"{text}.", "`holdfast dead groups` shows their causes.")
    else:
        cause = f" --fingerprint {most.fingerprint}" if most.fingerprint is not None else ""
        yield _warning(
            "many-deaths",
            f"{text}, {most.count:,} of them in queue {most.queue} with the same error: {_first(most)}.",
            f"`holdfast dead show {most.id}` shows where. Repair it, then "
            f"`holdfast dead redrive -q {most.queue}{cause}`.",
        )


def _first(each: Cause) -> str:
    line = (each.error or "an unknown one").partition("\n")[0].rstrip(".")
    return line if len(line) <= ERROR_CHARS else line[: ERROR_CHARS - 1] + "…"


def _orphaned(queue: QueueState, is_app_known: bool) -> Iterator[Finding]:
    """An empty queue is reported only with an application: with only a URL its handlers are not known."""
    if not queue.is_orphaned or not (queue.depth or is_app_known):
        return
    if "@" in queue.name:  # a version of an orchestration: `flow_problems` says what to do
        return
    waits = waiting(queue.depth, more=bool(queue.more)) if queue.depth else "nothing waits yet"
    if queue.subscriptions:
        yield _warning(
            "orphaned-queue",
            f"Queue {queue.name} is subscribed to {', '.join(queue.subscriptions)}, and no handler and no live worker "
            f"has it: {waits}, and new messages are still stored there.",
            f"Renamed: `holdfast queues move {queue.name} TO`. Removed: `holdfast queues drop {queue.name}`. "
            "Otherwise start the worker that has it.",
        )
    elif queue.depth:
        yield _warning(
            "orphaned-queue",
            f"Nobody takes from queue {queue.name}, in which {waits}.",
            f"Start a worker with its handler, or `holdfast queues move {queue.name} TO`, or drop it.",
        )


def _queue(at: datetime, queue: QueueState, anybody: bool) -> Iterator[Finding]:
    if queue.depth and anybody and not (queue.workers or queue.is_orphaned) and queue.subscriptions:
        yield _warning(
            "no-worker-for-queue",
            f"No live worker takes from queue {queue.name}, in which {waiting(queue.depth, more=bool(queue.more))}.",
            f"Start one: `holdfast worker MODULE:APP -q {queue.name}`.",
        )
    if queue.oldest_at is not None and late(at, queue.oldest_at):
        is_paused = queue.paused_at is not None
        yield _warning(
            "late",
            f"The oldest message of queue {queue.name}{', which is paused,' if is_paused else ''} has been due for "
            f"{lasting((at - queue.oldest_at).total_seconds())}.",
            f"`holdfast queues resume {queue.name}` claims from it again."
            if is_paused
            else f"`holdfast messages list -q {queue.name} --oldest -n 1`, then `holdfast why ID`.",
        )


def _stream(at: datetime, stream: StreamState) -> Finding | None:
    """A stream that is halted, blocked for long, or growing behind a blocked head."""
    who = f"Stream {stream.stream} of queue {stream.queue}"
    look = f"`holdfast streams show {stream.queue} {stream.stream}`"
    waits = waiting(stream.waiting)
    if stream.halted_by is not None:
        since = f" since {clock(stream.halted_at, at)}" if stream.halted_at is not None else ""
        if stream.halted_by.startswith(INSTANCE):
            id, state = stream.stream, stream.halted_by.removeprefix(INSTANCE)
            return _warning(
                "halted-stream",
                f"Instance {id} of {stream.queue} is {state}{since}; {waits}.",
                f"`holdfast why {id}` says why, `holdfast orchestrations resume {id}` lets it continue.",
            )
        return _warning(
            "halted-stream",
            f"{who} is halted{since} by {stream.halted_by}; {waits}.",
            f"{look}, then redrive that dead letter, or `holdfast streams resume {stream.queue} {stream.stream}`.",
        )
    grows = stream.is_growing and (stream.attempts >= STUCK_ATTEMPTS or late(at, stream.since))
    if not grows and not late(at, stream.since, BLOCKED_SECONDS):
        return None
    hours = "" if stream.since is None else f" since {clock(stream.since, at)}"
    more = " and grows: nothing of it is handled, and" if stream.is_growing else ":"
    return _warning(
        "blocked-stream",
        f"{who} is blocked{hours}{more} {waits} behind {stream.head}.",
        f"{look}; then `holdfast messages retry {stream.head}`, or set it aside, or make it a dead letter.",
    )


def _loops(count: int) -> Iterator[Finding]:
    if count:
        seem = "seems" if count == 1 else "seem"
        yield _warning(
            "retry-loop",
            f"{counted(count, 'message')} {seem} to be in a retry loop: failed {POISON_ATTEMPTS} times or more.",
            "`holdfast doctor` names them; repair the cause, then `holdfast messages retry ID --reset`.",
        )


def _unrouted(each: Unrouted) -> Finding:
    waits = waiting(each.count)
    return _warning(
        "unrouted",
        f"Nobody subscribes to {each.type}: {waits} for a subscriber.",
        f"Start a worker that has a handler for it, or `holdfast messages list -t {each.type}` and cancel them.",
    )
