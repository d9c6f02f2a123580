"""`holdfast streams`: the order of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from . import show
from .completing import ids as complete_ids
from .filters import ID_HELP, Limit, Queue, QueueName, Why, meant
from .messages import changes
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from datetime import datetime

    from ..operations import StreamState

app = typer.Typer(help="Streams: what blocks them, and what to do about it.", no_args_is_help=True)

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help=ID_HELP, autocompletion=complete_ids)]
StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream.")]
PROPERTIES = ("is_blocked", "waiting", "since", "is_growing")


@command(app, "list")
def list_(target: Target, queue: Queue = None, limit: Limit = 50) -> None:
    """Streams with pending messages, the longest first."""
    with target.operations() as found:
        at, states = found.now(), found.streams.list(queue=queue, limit=limit)
    listed(states, at, target.json, "No stream has pending messages.")


@command(app)
def blocked(target: Target, queue: Queue = None, limit: Limit = 50) -> None:
    """Blocked streams: by what, and until when.

    They are halted, or their head cannot be claimed now."""
    with target.operations() as found:
        at, states = found.now(), found.streams.blocked(queue=queue, limit=limit)
    listed(states, at, target.json, "No stream is blocked.")


def listed(states: Sequence[StreamState], at: datetime, json: bool, empty: str) -> None:
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
                e.attempts or None,
                e.waiting,
                halter(e.halted_by),
            )
            for e in states
        ),
        empty,
        at=at,
        spare=("until", "reason", "attempts"),
    )


def halter(halted_by: str | None) -> UUID | str | None:
    """The dead letter that halts a stream, or the operator's reason."""
    try:
        return None if halted_by is None else UUID(halted_by)
    except ValueError:
        return halted_by


@command(app, "show")
def show_(queue: QueueName, stream: StreamName, target: Target, limit: Limit = 200) -> None:
    """A stream in its order; what is out of the order comes last."""
    with target.operations() as found:
        at, order = found.now(), found.streams.show(queue, stream, limit=limit)
    if target.json:
        state = None if order.state is None else show.fields(order.state, *PROPERTIES)
        show.document({"state": state, "messages": order.messages})
        return
    if order.state is not None and order.state.halted_by is not None:
        show.sentence(f"Halted since {show.clean(order.state.halted_at)} UTC by {order.state.halted_by}.")
    show.table(
        ("place", "id", "type", "state", "attempts", "claimable", "worker"),
        (
            (
                str(n) if e.position is not None else "out",
                e.id,
                e.type,
                e.state,
                e.attempts or None,
                e.claimable_at,
                e.worker,
            )
            for n, e in enumerate(order.messages, 1)
        ),
        "Nothing is in it.",
        at=at,
        spare=("attempts", "worker"),
    )


@command(app, "set-aside")
def set_aside(queue: QueueName, stream: StreamName, change: Change, target: Target, why: Why = None) -> None:
    """Take the head out of the order: the rest continues."""
    show.confirm(
        f"Set the head of stream {stream} in queue {queue} aside? It does not come back into the order.",
        change.yes,
    )
    with target.operations(change.by) as found:
        changes([found.streams.set_aside(queue, stream, why=why)], target.json)


@command(app)
def release(ids: Ids, change: Change, target: Target, queue: Queue = None, why: Why = None) -> None:
    """Take waiting messages out of the order.

    The others stay blocked."""
    with target.operations(change.by) as found:
        messages = [meant(found, each) for each in ids]
        named = f"message {messages[0]}" if len(messages) == 1 else f"{len(messages)} messages"
        show.confirm(f"Release {named} from the stream? It does not come back into the order.", change.yes)
        done = [each for id in messages for each in found.streams.release(id, queue=queue, why=why)]
    changes(done, target.json)


@command(app)
def halt(
    queue: QueueName,
    stream: StreamName,
    why: Annotated[str, typer.Option("--why", help="Shown by `why` and `status`.")],
    change: Change,
    target: Target,
) -> None:
    """Hand out nothing of a stream until it is resumed."""
    with target.operations(change.by) as found:
        found.streams.halt(queue, stream, why)
    show_done(target.json, queue, stream, "halted")


@command(app)
def resume(queue: QueueName, stream: StreamName, change: Change, target: Target, why: Why = None) -> None:
    """Let a halted stream continue with the first message of its order."""
    with target.operations(change.by) as found:
        lifted = found.streams.resume(queue, stream, why=why)
    show_done(target.json, queue, stream, "resumed" if lifted else "was not halted")


def show_done(json: bool, queue: str, stream: str, what: str) -> None:
    if json:
        show.document({"queue": queue, "stream": stream, "what": what})
    else:
        show.sentence(f"stream {stream} of queue {queue}: {what}")
