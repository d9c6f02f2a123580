"""`holdfast alerts`: which alerts are raised, a check from outside, and a test of the sinks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from . import show
from .filters import Limit
from .options import command
from .target import Change, NamedTarget, chosen, operations

if TYPE_CHECKING:
    from ..operations import Operations

app = typer.Typer(
    help="Alerts: which are raised. Check from outside, test the sinks.",
    no_args_is_help=True,
)


@command(app, "list")
def list_(target: NamedTarget, limit: Limit = 20) -> None:
    """Alerts that are raised now, and the last news.

    With what became of it."""
    with target.operations() as found:
        at, raised, news = found.now(), found.alerts.raised(), found.alerts.news(limit=limit)
    if target.json:
        listed = [{**show.fields(each), "alert": show.fields(each.alert)} for each in news]
        show.document({"raised": raised, "news": listed})
        return
    show.table(
        ("alert", "about", "since", "value", "highest"),
        ((e.name, e.subject, e.since, f"{e.value:g}", f"{e.peak:g}") for e in raised),
        "No alert is raised.",
        at=at,
    )
    show.plain("")
    show.table(
        ("number", "at", "what", "text", "sent to", "tries", "error"),
        (
            (
                e.alert.number,
                e.alert.at,
                e.alert.what,
                e.alert.text,
                ", ".join(e.sent_to) if e.ended_at is None or e.sent_to else "nobody",
                e.tries,
                e.error,
            )
            for e in news
        ),
        "There has been no news.",
        at=at,
        spare=("number", "tries", "sent to"),
    )


@command(app)
def check(
    target: NamedTarget,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C: beside the workers.")
    ] = False,
) -> None:
    """Measure, decide and send, now. Exits with 3 while an alert is raised. For cron, away from the workers."""
    name, json = known(target), target.json
    if watch and json:
        raise UsageError("--watch runs until it is stopped; --json answers once.")
    with operations(name, None) as found:
        if watch:
            _watch(found)
            return
        found.outages.look(now=True)
        found.alerts.look(now=True)
        found.alerts.send()
        raised = found.alerts.raised()
    if json:
        show.document(raised)
    for each in [] if json else raised:
        about = f" of {each.subject}" if each.subject else ""
        show.sentence(f"{each.name}{about} since {show.clean(each.since)} UTC: {each.value:g}")
    if raised:
        raise typer.Exit(show.UNHEALTHY)
    if not json:
        show.plain("No alert is raised.")


def _watch(found: Operations) -> None:
    from ..errors import HoldfastError

    every = found.settings.alert_every
    try:
        while True:
            try:
                found.outages.look()
                found.alerts.look()
                found.alerts.send()
            except HoldfastError as error:  # the database may come back
                show.complain(error)
            time.sleep(every)
    except KeyboardInterrupt:
        return


@command(app, "test")
def try_sinks(target: NamedTarget, change: Change) -> None:
    """Send a test to every sink of the application, once. Nothing is stored."""
    with operations(known(target), None, by=change.by) as found:
        answers = found.alerts.try_sinks()
    if target.json:
        show.document(answers)
    else:
        show.table(("sink", "answer"), ((name, error or "taken") for name, error in answers.items()), "")
    if any(answers.values()):
        raise typer.Exit(show.FAILED)


def known(target: NamedTarget) -> str:
    """The application: only it knows where its alerts go, so a URL is not enough."""
    name, _ = chosen(target.app, target.url, target.target)
    if name is None:
        raise UsageError("Only the application knows where its alerts go: give MODULE:APP, such as shop:app.")
    return name
