"""`holdfast subscriptions`: which queue gets which types, and what nobody serves any more."""

from __future__ import annotations

from typing import Annotated

import typer

from . import show
from .messages import Why
from .show import Json, Yes
from .target import App, As, Url, operations

app = typer.Typer(
    help="Subscriptions: which queue gets which types; drop those of handlers that are gone.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]


@app.command("list")
def list_(app: App = None, url: Url = None, json: Json = False) -> None:
    """Every subscription, with who takes from its queue. Orphaned: no live worker and no handler has it."""
    with operations(app, url) as found:
        subscriptions = found.subscriptions.list()
    if json:
        show.document(subscriptions)
        return
    show.table(
        ("queue", "types", "depth", "workers", "renamed to", "orphaned"),
        ((e.queue, e.pattern, e.depth, len(e.workers), e.renamed_to, e.is_orphaned) for e in subscriptions),
        "There are no subscriptions.",
    )


@app.command()
def drop(
    queue: Name,
    yes: Yes = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Send no new messages to a queue whose handler is gone. What is in it stays: `queues move`, `queues drop`."""
    show.confirm(f"Send no new messages to queue {queue}?", yes)
    with operations(app, url, by=by) as found:
        done = found.subscriptions.drop(queue, why=why)
    if json:
        show.document(done)
        return
    what = f"no longer subscribed to {', '.join(done.patterns)}" if done.patterns else "had no subscription"
    what += f", and no longer renamed to {done.renamed_to}" if done.renamed_to is not None else ""
    show.plain(f"queue {show.clean(queue)}: {show.clean(what)}")
