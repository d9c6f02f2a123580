"""`holdfast status`, `why` and `doctor`: the state, why a message is in its state, what is wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..errors import HoldfastError, NotFound, UsageError
from . import show
from .filters import Id
from .messages import show_traceback
from .target import NamedTarget, Target

if TYPE_CHECKING:
    from ..operations import Finding, Operations, Status

WATCH_SECONDS = 2.0
STATES = ("ready", "leased", "waiting", "blocked", "retrying", "scheduled", "parked", "suspect")
ALIKE = 3  # problems of one kind that are printed; the others are counted
STREAMS, WORKERS = 5, 20


def status(
    target: NamedTarget,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Repeat every two seconds, until Ctrl-C.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 if something is unhealthy.")] = False,
) -> None:
    """Show what is wrong and what to do next.

    Then queues, workers, breakers, frequent errors, what is blocked or dead."""
    if watch and (target.json or check):
        raise UsageError("--watch runs until it is stopped; --json and --check answer once.")
    with target.operations() as found:
        if watch:
            _watch(found)
            return
        answer = found.status()
    if target.json:
        show.document(answer)
    else:
        print_status(answer)
    if check and answer.problems:
        raise typer.Exit(show.UNHEALTHY)


def _watch(found: Operations) -> None:
    try:
        while True:
            answer = found.status()
            show.clear()
            print_status(answer)
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def print_status(answer: Status) -> None:
    """Numbers first, then each problem with the next command for it, then the details."""
    states = ", ".join(
        f"{show.at_least(count, state in answer.more)} {state}"
        for state, count in sorted(answer.states.items())
    )
    ended = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(answer.ended.items())) or "nothing"
    alive = sum(each.is_alive for each in answer.workers)
    silent = len(answer.workers) - alive
    show.pairs(
        [
            ("at", f"{answer.at:%Y-%m-%d %H:%M:%S} UTC"),
            ("pending", f"{show.at_least(answer.depth, bool(answer.more))}: {states or 'nothing'}"),
            ("oldest due", show.age(answer.oldest_age)),
            ("dead", f"{answer.dead:,}" if answer.dead else "none"),
            ("last minute", ended),
            ("blocked", show.counted(len(answer.blocked), "stream") if answer.blocked else "none"),
            ("requests", requests_of(answer)),
            ("workers", f"{alive} running" + (f", {silent} silent" if silent else "")),
        ]
    )
    show.plain("")
    print_problems(answer.problems)
    print_breakers(answer)
    print_paused(answer)
    print_blocked(answer)
    print_causes(answer)
    print_queues(answer)
    print_workers(answer)


def requests_of(answer: Status) -> str:
    """Those that need somebody; nothing if none does."""
    overdue = f"{answer.overdue_requests:,} overdue" if answer.overdue_requests else ""
    late = f"{answer.late_requests:,} with a late result" if answer.late_requests else ""
    return ", ".join(filter(None, (overdue, late)))


def print_problems(problems: Sequence[Finding]) -> None:
    if not problems:
        show.plain("Nothing is wrong.", fg="green")
    many = Counter(each.name for each in problems)
    seen: Counter[str] = Counter()
    for each in problems:
        seen[each.name] += 1
        if seen[each.name] <= ALIKE:
            show.sentence(each.text, "! ", fg="red")
            show.sentence(each.remedy, "  ")
        elif seen[each.name] == ALIKE + 1:
            show.sentence(
                f"{many[each.name] - ALIKE} more like that: `holdfast doctor` lists them.", "! ", fg="red"
            )
    show.plain("")


def print_breakers(answer: Status) -> None:
    if answer.breakers:
        show.table(
            ("breaker", "state", "since", "next trial", "holds back", "why"),
            (
                (
                    e.name,
                    e.state.replace("_", " ") + (", forced" if e.is_forced else ""),
                    e.since,
                    e.until,
                    "?" if e.held is None else f"{e.held:,} in {', '.join(e.queues or ('no queue',))}",
                    e.why,
                )
                for e in answer.breakers
            ),
            "",
            at=answer.at,
            spare=("next trial",),
        )
        show.plain("")


def print_paused(answer: Status) -> None:
    if answer.paused:
        show.table(
            ("paused queue", "since", "by", "wait", "why"),
            ((e.queue, e.since, e.who, e.depth, e.why) for e in answer.paused),
            "",
            at=answer.at,
        )
        show.plain("")


def print_blocked(answer: Status) -> None:
    if answer.blocked:
        show.table(
            ("blocked stream", "queue", "since", "wait", "head", "state", "error"),
            (
                (e.stream, e.queue, e.since, e.waiting, e.head, "halted" if e.halted_by else e.state, e.error)
                for e in answer.blocked[:STREAMS]
            ),
            "",
            at=answer.at,
            spare=("since", "state"),
        )
        if len(answer.blocked) > STREAMS:
            show.plain(f"and {len(answer.blocked) - STREAMS} more: `holdfast streams blocked`")
        show.plain("")


def print_causes(answer: Status) -> None:
    if answer.causes:
        show.table(
            ("errors", "are", "queue", "cause", "one of them", "error"),
            (
                (
                    f"{'' if e.is_exact else 'about '}{e.count:,}",
                    e.where,
                    e.queue,
                    e.fingerprint,
                    e.id,
                    e.error,
                )
                for e in answer.causes
            ),
            "",
            at=answer.at,
            spare=("cause",),
        )
        show.plain("")


def print_queues(answer: Status) -> None:
    show.table(
        ("queue", "depth", *STATES, "dead", "paused", "orphaned"),
        (
            (
                e.name,
                *show.depths(e, STATES),
                e.dead or None,
                "yes" if e.paused_at is not None else None,
                e.is_orphaned,
            )
            for e in answer.queues
        ),
        "There are no queues.",
        spare=("suspect", "leased", "waiting", "scheduled", "parked"),
    )
    show.plain("")


def print_workers(answer: Status) -> None:
    show.table(
        ("worker", "seen", "is", "leases", "queues"),
        (
            (
                e.name,
                min(e.seen_at, answer.at),  # a worker may be seen while the page is made
                "silent" if not e.is_alive else "stopping" if e.stopping else "alive",
                e.leases or None,
                ", ".join(e.queues),
            )
            for e in answer.workers[:WORKERS]
        ),
        "No worker is known.",
        at=answer.at,
    )
    if len(answer.workers) > WORKERS:
        show.plain(f"and {len(answer.workers) - WORKERS} more: --json lists them")


def metrics(target: NamedTarget) -> None:
    """The database's metrics once, in Prometheus format. Workers serve their own counters: `worker --metrics`."""
    with target.opened() as found:
        if target.json:
            show.document([each._asdict() for each in found.metrics()])
        else:
            for line in found.metrics_text().rstrip("\n").split("\n"):
                show.plain(show.clean(line))


def why(
    id: Id,
    target: Target,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With the last traceback, if it failed.")
    ] = False,
) -> None:
    """Say why a message is in its state, in sentences.

    Also a request, or an instance of an orchestration: what it waits for."""
    with target.operations() as found:
        sentences, traces, asked = found.why_instance(id), [], id
        if not sentences:
            meant = named(found, id)
            asked, sentences = str(meant), found.why(meant)
            if verbose and isinstance(meant, UUID):
                traces = found.tracebacks(meant)
    if target.json:
        show.document({"id": asked, "why": sentences} | ({"tracebacks": traces} if verbose else {}))
    else:
        for sentence in sentences:
            show.sentence(sentence)
        for trace in traces:
            show_traceback(trace)
    if sentences[0].startswith("Unknown"):
        raise typer.Exit(show.FAILED)


def named(found: Operations, text: str) -> UUID | str:
    """The message, request or instance that is meant; it may be given in part."""
    try:
        return found.named(text)
    except HoldfastError as error:
        if error.details:  # there are several messages
            raise
        try:
            return found.orchestrations.named(text)
        except NotFound:
            raise error from None


def doctor(
    target: NamedTarget,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read and check everything that is stored; takes time.")
    ] = False,
) -> None:
    """Find what is wrong or will go wrong, and what to do. Changes nothing. Exits with 3 unless all is well."""
    with target.operations() as found:
        findings = found.doctor(deep=deep)
    colours = {"error": "red", "warning": "yellow", "note": None}
    if target.json:
        show.document(findings)
    else:
        for each in findings:
            show.sentence(f"{each.severity}: {each.text}", fg=colours[each.severity])
            show.sentence(each.remedy, "  ")
        if not findings:
            show.plain("Nothing is wrong.", fg="green")
    if any(each.severity != "note" for each in findings):
        raise typer.Exit(show.UNHEALTHY)
