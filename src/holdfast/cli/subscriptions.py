"""`holdfast subscriptions`: which queue gets which types, and queues that no worker serves."""

from __future__ import annotations

import typer

from . import show
from .filters import QueueName, Why
from .options import command
from .target import Change, Target

app = typer.Typer(
    help="Subscriptions: which queue gets which types.",
    no_args_is_help=True,
)


@command(app, "list")
def list_(target: Target) -> None:
    """Every subscription, with who takes from its queue. Orphaned: no live worker and no handler has it."""
    with target.operations() as found:
        subscriptions = found.subscriptions.list()
    if target.json:
        show.document(subscriptions)
        return
    show.table(
        ("queue", "types", "depth", "workers", "renamed to", "orphaned"),
        ((e.queue, e.pattern, e.depth, len(e.workers), e.renamed_to, e.is_orphaned) for e in subscriptions),
        "There are no subscriptions.",
        spare=("workers", "depth"),
    )


@command(app)
def drop(queue: QueueName, change: Change, target: Target, why: Why = None) -> None:
    """Send no new messages to a queue whose handler is gone. What is in it stays: `queues move`, `queues drop`."""
    show.confirm(f"Send no new messages to queue {queue}?", change.yes)
    with target.operations(change.by) as found:
        done = found.subscriptions.drop(queue, why=why)
    if target.json:
        show.document(done)
        return
    what = f"no longer subscribed to {', '.join(done.patterns)}" if done.patterns else "had no subscription"
    what += f", and no longer renamed to {done.renamed_to}" if done.renamed_to is not None else ""
    show.sentence(f"queue {queue}: {what}")
