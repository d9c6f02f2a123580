"""`holdfast status`, `why` and `doctor`: how it is, why a message is where it is, what is wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from . import show
from .show import Id, Json
from .target import App, Target, Url, opened, operations

if TYPE_CHECKING:
    from ..operations import Operations, Status

WATCH_SECONDS = 2.0
STATES = ("ready", "leased", "waiting", "blocked", "retrying", "scheduled", "parked", "suspect")


def status(
    target: Target = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again every two seconds, until Ctrl-C.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 if something is unhealthy.")] = False,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Everything at a glance: queues, workers, what is blocked, dead or unrouted."""
    if watch and (json or check):
        raise UsageError("--watch goes on until it is stopped; --json and --check answer once.")
    with operations(app, url, target) as found:
        if watch:
            _watch(found)
            return
        answer = found.status()
    if json:
        show.document(answer)
    else:
        print_status(answer)
    if check and answer.problems:
        raise typer.Exit(show.UNHEALTHY)


def _watch(found: Operations) -> None:
    try:
        while True:
            answer = found.status()
            show.console().clear()
            print_status(answer)
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def print_status(answer: Status) -> None:
    states = ", ".join(f"{count} {state}" for state, count in sorted(answer.states.items())) or "nothing"
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(answer.ended.items())) or "nothing"
    show.pairs(
        [
            ("at", f"{answer.at:%Y-%m-%d %H:%M:%S} UTC"),
            ("pending", f"{answer.depth}: {states}"),
            ("oldest due", show.age(answer.oldest_age)),
            ("dead", answer.dead or "none"),
            ("last minute", ended),
            ("blocked", f"{len(answer.blocked)} streams" if answer.blocked else "none"),
        ]
    )
    show.plain("")
    show.table(
        ("queue", "depth", *STATES, "dead", "paused"),
        (
            (
                e.name,
                e.depth,
                *(e.states.get(state) for state in STATES),
                e.dead or None,
                e.paused_at is not None,
            )
            for e in answer.queues
        ),
        "There are no queues.",
    )
    show.plain("")
    show.table(
        ("worker", "seen", "alive", "leases", "queues"),
        (
            (e.name, f"{show.age(e.age)} ago", e.is_alive, e.leases, ", ".join(e.queues))
            for e in answer.workers
        ),
        "No worker is known.",
    )
    for problem in answer.problems:
        show.plain(f"! {show.clean(problem)}")


def metrics(target: Target = None, app: App = None, url: Url = None, json: Json = False) -> None:
    """What the database says, once, as Prometheus reads it. What workers count, only they know: `worker --metrics`."""
    with opened(app, url, target) as found:
        if json:
            show.document([each._asdict() for each in found.metrics()])
        else:
            show.plain(found.metrics_text().rstrip("\n"))


def why(id: Id, app: App = None, url: Url = None, json: Json = False) -> None:
    """Why a message is where it is, or an orchestration's instance: what it waits for, in sentences."""
    with operations(app, url) as found:
        sentences = found.why(id)
    if json:
        show.document({"id": id, "why": sentences})
    else:
        for sentence in sentences:
            show.plain(show.clean(sentence))
    if sentences[0].startswith("Unknown"):
        raise typer.Exit(show.FAILED)


def doctor(
    target: Target = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read and compare everything that is stored; takes its time.")
    ] = False,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Look for what is wrong or will be, and say what to do. Changes nothing. Exits with 3 unless all is well."""
    with operations(app, url, target) as found:
        findings = found.doctor(deep=deep)
    if json:
        show.document(findings)
    else:
        for each in findings:
            show.plain(f"{each.severity}: {show.clean(each.text)}\n  {show.clean(each.remedy)}")
        if not findings:
            show.plain("Nothing is wrong.")
    if any(each.severity != "note" for each in findings):
        raise typer.Exit(show.UNHEALTHY)
