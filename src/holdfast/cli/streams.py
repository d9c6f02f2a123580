"""`holdfast streams`: the order of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .messages import Why, changes
from .show import Json, Limit, Queue, Yes
from .target import App, As, Url, operations

if TYPE_CHECKING:
    from ..operations import StreamState

app = typer.Typer(help="Streams: what holds them up, and what to do about it.", no_args_is_help=True)

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="The ids of the messages.")]
StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream.")]
PROPERTIES = ("is_blocked", "waiting", "since", "is_growing")


@app.command("list")
def list_(
    queue: Queue = None, limit: Limit = 50, app: App = None, url: Url = None, json: Json = False
) -> None:
    """Streams with something in their order, those with most behind the head first."""
    with operations(app, url) as found:
        states = found.streams.list(queue=queue, limit=limit)
    listed(states, json, "No stream has pending messages.")


@app.command()
def blocked(
    queue: Queue = None, limit: Limit = 50, app: App = None, url: Url = None, json: Json = False
) -> None:
    """Streams that are halted, or whose head cannot be claimed now: by what, and until when."""
    with operations(app, url) as found:
        states = found.streams.blocked(queue=queue, limit=limit)
    listed(states, json, "No stream is blocked.")


def listed(states: Sequence[StreamState], json: bool, empty: str) -> None:
    if json:
        show.document([show.fields(each, *PROPERTIES) for each in states])
        return
    show.table(
        ("queue", "stream", "head", "state", "until", "reason", "attempts", "waiting", "halted by"),
        (
            (
                e.queue,
                e.stream,
                e.head,
                e.state,
                e.until or e.claimable_at,
                e.reason,
                e.attempts,
                e.waiting,
                e.halted_by,
            )
            for e in states
        ),
        empty,
    )


@app.command("show")
def show_(
    queue: QueueName,
    stream: StreamName,
    limit: Limit = 200,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """A stream in its order; what is out of the order comes last."""
    with operations(app, url) as found:
        order = found.streams.show(queue, stream, limit=limit)
    if json:
        state = None if order.state is None else show.fields(order.state, *PROPERTIES)
        show.document({"state": state, "messages": order.messages})
        return
    if order.state is not None and order.state.halted_by is not None:
        show.plain(
            f"Halted since {show.clean(order.state.halted_at)} by {show.clean(order.state.halted_by)}."
        )
    show.table(
        ("place", "id", "type", "state", "attempts", "claimable", "worker"),
        (
            (
                n if e.position is not None else "out",
                e.id,
                e.type,
                e.state,
                e.attempts,
                e.claimable_at,
                e.worker,
            )
            for n, e in enumerate(order.messages, 1)
        ),
        "Nothing is in it.",
    )


@app.command("set-aside")
def set_aside(
    queue: QueueName,
    stream: StreamName,
    yes: Yes = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Take the head out of the order, so that what stands behind it goes on."""
    show.confirm(
        f"Set the head of stream {stream} in queue {queue} aside? It does not come back into the order.", yes
    )
    with operations(app, url, by=by) as found:
        changes([found.streams.set_aside(queue, stream, why=why)], json)


@app.command()
def release(
    ids: Ids,
    queue: Queue = None,
    yes: Yes = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Take waiting messages out of the order, one or several; those between stay blocked."""
    named = f"message {ids[0]}" if len(ids) == 1 else f"{len(ids)} messages"
    show.confirm(f"Release {named} from the stream? It does not come back into the order.", yes)
    with operations(app, url, by=by) as found:
        changes([each for id in ids for each in found.streams.release(id, queue=queue, why=why)], json)


@app.command()
def halt(
    queue: QueueName,
    stream: StreamName,
    why: Annotated[str, typer.Option("--why", help="Shown to whoever asks why the stream stands still.")],
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Hand out nothing of a stream until it is resumed."""
    with operations(app, url, by=by) as found:
        found.streams.halt(queue, stream, why)
    told(json, queue, stream, "halted")


@app.command()
def resume(
    queue: QueueName,
    stream: StreamName,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Let a halted stream go on with the first message of its order."""
    with operations(app, url, by=by) as found:
        lifted = found.streams.resume(queue, stream, why=why)
    told(json, queue, stream, "resumed" if lifted else "was not halted")


def told(json: bool, queue: str, stream: str, what: str) -> None:
    if json:
        show.document({"queue": queue, "stream": stream, "what": what})
    else:
        show.plain(f"stream {show.clean(stream)} of queue {show.clean(queue)}: {what}")
