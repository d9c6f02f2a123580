"""`holdfast queues`: whole queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .completing import queues as complete_queues
from .filters import QueueName, Why
from .options import command
from .overview import STATES
from .target import Change, Target

if TYPE_CHECKING:
    from ..operations import Emptied

app = typer.Typer(help="Queues: how deep they are; pause, move, drop them.", no_args_is_help=True)


@command(app, "list")
def list_(target: Target) -> None:
    """Every queue with its depth by state."""
    with target.operations() as found:
        at, queues, *_ = found.queues.quick_survey()
    if target.json:
        show.document(queues)
        return
    show.table(
        ("queue", "depth", *STATES, "oldest", "dead", "workers", "orphaned", "paused", "why"),
        (
            (
                e.name,
                *show.depths(e, STATES),
                show.age((at - e.oldest_at).total_seconds() if e.oldest_at is not None else None),
                e.dead or None,
                len(e.workers),
                e.is_orphaned,
                e.paused_at,
                e.paused_why,
            )
            for e in queues
        ),
        "There are no queues.",
        at=at,
        spare=("why", "suspect", "scheduled", "parked", "oldest", "workers"),
    )


@command(app)
def pause(
    queue: QueueName,
    change: Change,
    target: Target,
    why: Annotated[str | None, typer.Option("--why", help="Shown by `why` and `status`.")] = None,
) -> None:
    """Claim nothing from a queue; what runs is settled."""
    with target.operations(change.by) as found:
        found.queues.pause(queue, why)
    show_done(target.json, queue, "paused")


@command(app)
def resume(queue: QueueName, change: Change, target: Target, why: Why = None) -> None:
    """Claim from a queue again."""
    with target.operations(change.by) as found:
        resumed = found.queues.resume(queue, why=why)
    show_done(target.json, queue, "resumed" if resumed else "was not paused")


@command(app)
def move(
    queue: QueueName,
    to: Annotated[
        str, typer.Argument(metavar="TO", help="Where the messages go.", autocompletion=complete_queues)
    ],
    change: Change,
    target: Target,
    why: Why = None,
) -> None:
    """Move all pending messages to another queue.

    Each stream in its order. The first queue is unsubscribed."""
    show.confirm(f"Move everything pending in queue {queue} to {to}, and unsubscribe {queue}?", change.yes)
    with target.operations(change.by) as found, show.counting("moving", target.json) as progress:
        done = found.queues.move(queue, to, why=why, progress=progress)
    what = f"{show.counted(done.moved, 'message')} moved to {to}, {done.ended - done.over} already there"
    what += f", {done.over} had ended there" if done.over else ""
    what += f", {done.taken} became dead letters there because their ids were taken" if done.taken else ""
    emptied(done, target.json, what)


@command(app)
def drop(
    queue: QueueName,
    change: Change,
    target: Target,
    force: Annotated[bool, typer.Option("--force", help="Discard what is pending in it.")] = False,
    why: Why = None,
) -> None:
    """Remove a queue. Its dead letters stay."""
    what = "and DISCARD everything pending in it" if force else "which must be empty"
    show.confirm(f"Drop queue {queue}, {what}?", change.yes)
    with target.operations(change.by) as found, show.counting("discarding", target.json) as progress:
        done = found.queues.drop(queue, force=force, why=why, progress=progress)
    emptied(done, target.json, f"dropped, {show.counted(done.ended, 'message')} discarded")


def emptied(done: Emptied, json: bool, what: str) -> None:
    if json:
        show.document(done)
        return
    show.sentence(f"queue {done.queue}: {what}")


def show_done(json: bool, queue: str, what: str) -> None:
    if json:
        show.document({"queue": queue, "what": what})
    else:
        show.sentence(f"queue {queue}: {what}")
