"""`holdfast queues`: whole queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .messages import Why
from .show import Json, Yes
from .target import App, As, Url, operations

if TYPE_CHECKING:
    from ..operations import Emptied

app = typer.Typer(
    help="Queues: how deep they are, who takes from them; pause them, empty them.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]


@app.command("list")
def list_(app: App = None, url: Url = None, json: Json = False) -> None:
    """Every queue with its depth by state."""
    with operations(app, url) as found:
        at, queues, _ = found.queues.survey()
    if json:
        show.document(queues)
        return
    show.table(
        ("queue", "depth", "states", "oldest", "dead", "paused", "workers", "orphaned"),
        (
            (
                e.name,
                e.depth,
                ", ".join(f"{count} {state}" for state, count in e.states.items()),
                show.age((at - e.oldest_at).total_seconds() if e.oldest_at is not None else None),
                e.dead,
                f"since {show.clean(e.paused_at)} {e.paused_why or ''}".strip()
                if e.paused_at is not None
                else None,
                len(e.workers),
                e.is_orphaned,
            )
            for e in queues
        ),
        "There are no queues.",
    )


@app.command()
def pause(
    queue: Name,
    why: Annotated[str | None, typer.Option("--why", help="Shown to whoever asks why nothing moves.")] = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Claim nothing from a queue; what runs is settled."""
    with operations(app, url, by=by) as found:
        found.queues.pause(queue, why)
    told(json, queue, "paused")


@app.command()
def resume(
    queue: Name, why: Why = None, by: As = None, app: App = None, url: Url = None, json: Json = False
) -> None:
    """Claim from a queue again."""
    with operations(app, url, by=by) as found:
        resumed = found.queues.resume(queue, why=why)
    told(json, queue, "resumed" if resumed else "was not paused")


@app.command()
def move(
    queue: Name,
    to: Annotated[str, typer.Argument(metavar="TO", help="Where the messages go.")],
    yes: Yes = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Move all pending messages to another queue, each stream in its order, and unsubscribe the first."""
    show.confirm(f"Move everything pending in queue {queue} to {to}, and unsubscribe {queue}?", yes)
    with operations(app, url, by=by) as found, show.counting("moving", json) as progress:
        done = found.queues.move(queue, to, why=why, progress=progress)
    what = f"{done.moved} moved to {to}, {done.ended - done.over} were there already"
    what += f", {done.over} had ended there" if done.over else ""
    what += f", {done.taken} became dead letters there, their ids being taken" if done.taken else ""
    emptied(done, json, what)


@app.command()
def drop(
    queue: Name,
    force: Annotated[bool, typer.Option("--force", help="Discard what is pending in it.")] = False,
    yes: Yes = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Forget a queue. Its dead letters stay."""
    what = "and DISCARD everything pending in it" if force else "which must be empty"
    show.confirm(f"Drop queue {queue}, {what}?", yes)
    with operations(app, url, by=by) as found, show.counting("discarding", json) as progress:
        done = found.queues.drop(queue, force=force, why=why, progress=progress)
    emptied(done, json, f"dropped, {done.ended} messages discarded")


def emptied(done: Emptied, json: bool, what: str) -> None:
    if json:
        show.document(done)
        return
    show.plain(f"queue {show.clean(done.queue)}: {show.clean(what)}")


def told(json: bool, queue: str, what: str) -> None:
    if json:
        show.document({"queue": queue, "what": what})
    else:
        show.plain(f"queue {show.clean(queue)}: {what}")
