"""`holdfast dead`: dead letters."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from . import show
from .messages import (
    All,
    ReasonOption,
    Stream,
    Type,
    _with_content,
    changes,
    many,
    reason_number,
    show_content,
)
from .show import Id, Json, Limit, Queue, Yes
from .target import App, Url, operations

app = typer.Typer(help="Dead letters: look into them, bring them back, end them.", no_args_is_help=True)

Now = Annotated[bool, typer.Option("--now", help="Out of the order of its stream, beside the head.")]


@app.command("list")
def list_(
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    reason: ReasonOption = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="Those that died first, first.")] = False,
    limit: Limit = 50,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Dead letters, those that died last first."""
    from ..operations import Filter

    wanted = Filter(queue, type, stream, None, reason_number(reason))
    with operations(app, url) as found:
        letters = found.dead.list(wanted, newest=not oldest, limit=limit)
    if json:
        show.document(letters)
        return
    show.table(
        ("id", "queue", "type", "died", "reason", "last failure", "attempts", "stream", "halts it"),
        (
            (e.id, e.queue, e.type, e.died_at, e.reason, e.last_reason, e.attempts, e.stream, e.halts)
            for e in letters
        ),
        "No dead letter matches.",
    )


@app.command("show")
def show_(id: Id, app: App = None, url: Url = None, json: Json = False) -> None:
    """A dead letter with everything known about it."""
    from ..operations.results import failure

    with operations(app, url) as found:
        letters = found.dead.show(id)
    if json:
        show.document(
            [
                _with_content(each, content)
                | {"failure": failure(each, content), "told": str(failure(each, content))}
                for each, content in letters
            ]
        )
        return
    for each, content in letters:
        show.pairs([(name, value) for name, value in show.fields(each).items() if name != "error"])
        show_content(content)
        show.plain("")


@app.command()
def redrive(
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The id of the message; else a filter.")
    ] = None,
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    reason: ReasonOption = None,
    all: All = False,
    now: Now = False,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Bring a dead letter back, or all that match, in the order of their old positions."""
    from ..operations import Filter

    if id is not None:
        if type or stream or reason or all:
            raise UsageError("Give an ID or a filter, not both; --queue goes with either.")
        with operations(app, url) as found:
            changes(found.dead.redrive(id, queue=queue, now=now), json)
        return
    wanted = Filter(queue, type, stream, None, reason_number(reason))
    if wanted.is_empty and not all:
        raise UsageError("Give an ID, a filter, or --all for every dead letter.")
    with operations(app, url) as found, show.counting("redriving", json) as progress:
        done = found.dead.redrive_many(wanted, now=now, progress=progress)
    many(done, "redriven", json)


@app.command()
def discard(
    id: Id,
    why: Annotated[str, typer.Option("--why", help="Written to the log.")],
    queue: Queue = None,
    yes: Yes = False,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """End a dead letter for good and free its dedupe key."""
    show.confirm(f"Discard dead letter {id}? It cannot be brought back.", yes)
    with operations(app, url) as found:
        changes(found.dead.discard(id, why, queue=queue), json)
