"""`holdfast messages`: pending messages."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import show
from .show import Id, Json, Limit, Number, Queue, Yes
from .target import App, As, Url, operations

if TYPE_CHECKING:
    from ..operations import Content, Operations

app = typer.Typer(
    help="Pending messages: find them, look into them, let them go on, hold them back.", no_args_is_help=True
)


class StateName(StrEnum):
    """The states of `holdfast.operations`, which is not imported for `--help`."""

    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"
    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    PARKED = "parked"
    SUSPECT = "suspect"
    UNROUTED = "unrouted"


Type = Annotated[str | None, typer.Option("--type", "-t", help="Only of this type.")]
Stream = Annotated[str | None, typer.Option("--stream", "-s", help="Only of this stream.")]
StateOption = Annotated[StateName | None, typer.Option("--state", help="Only in this state.")]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", "-r", help="Only those whose last failure had this reason: a number or a name."),
]
Why = Annotated[str | None, typer.Option("--why", help="Kept in the audit.")]
All = Annotated[bool, typer.Option("--all", help="Everything, without a filter.")]
Reveal = Annotated[bool, typer.Option("--reveal", help="Open bodies that are encrypted, with the keys here.")]


def reason_number(text: str | None) -> int | None:
    """1 or transport-unavailable."""
    if text is None:
        return None
    from ..model.message import Reason

    try:
        return int(text) if text.isdigit() else Reason[text.upper().replace("-", "_")]
    except KeyError:
        names = ", ".join(each.name.lower().replace("_", "-") for each in Reason)
        raise UsageError(f"There is no reason {text!r}; there are: {names}.") from None


@app.command("list")
def list_(
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    state: StateOption = None,
    reason: ReasonOption = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest first.")] = False,
    limit: Limit = 50,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Pending messages, the newest first."""
    from ..operations import Filter

    wanted = Filter(queue, type, stream, state.value if state else None, reason_number(reason))
    with operations(app, url) as found:
        deliveries = found.messages.find(wanted, newest=not oldest, limit=limit)
    if json:
        show.document(deliveries)
        return
    show.table(
        ("id", "queue", "type", "state", "stream", "attempts", "claimable", "reason"),
        (
            (
                e.id,
                e.queue,
                e.type,
                e.state,
                e.stream,
                e.attempts,
                e.claimable_at,
                e.reason if e.has_failed else None,
            )
            for e in deliveries
        ),
        "No pending message matches.",
    )


@app.command("show")
def show_(id: Id, reveal: Reveal = False, app: App = None, url: Url = None, json: Json = False) -> None:
    """Everything about a message, in all its queues: counters, errors, headers, body."""
    with operations(app, url) as found:
        dossier = found.messages.show(id)
        pending = [(each, readable(found, each, content, reveal, json)) for each, content in dossier.pending]
        dead = [(each, readable(found, each, content, reveal, json)) for each, content in dossier.dead]
    if json:
        show.document(
            {
                "id": dossier.id,
                "pending": [_with_content(each, content) for each, content in pending],
                "dead": [_with_content(each, content) for each, content in dead],
                "ended": dossier.ended,
            }
        )
        return
    for each, content in [*pending, *dead]:
        show.pairs(numbered(each))
        show_content(content)
        show.plain("")
    for ended in dossier.ended:
        show.pairs([("id", dossier.id), *show.fields(ended).items()])
        show.plain("")


def numbered(each: object) -> list[tuple[str, Any]]:
    """Everything about a message but its error, with the number that tells it from others with its id."""
    told = show.fields(each)
    return [("number", told["seq"]), *((n, value) for n, value in told.items() if n not in ("seq", "error"))]


def readable(found: Operations, each: Any, content: Content, reveal: bool, json: bool) -> Content:
    """What is shown of bodies that are encrypted: what is stored, for people the key's name; opened if asked for."""
    from dataclasses import replace

    from ..bodies.keys import key_of

    def shown(body: str) -> str:
        key = key_of(body)
        if key is None:
            return body
        if reveal:
            return found.reveal(each.id, each.type, body)
        return body if json else f"(sealed with key {key}; --reveal opens it)"

    deaths = tuple(
        each if each.body is None else replace(each, body=shown(each.body)) for each in content.deaths
    )
    return replace(content, body=shown(content.body), deaths=deaths)


def _with_content(each: object, content: object) -> dict[str, object]:
    told = show.fields(content)
    told["body"], told["headers"] = show.raw(told["body"]), show.raw(told["headers"])  # type: ignore[arg-type]
    return show.fields(each) | told


def show_traceback(text: str | None) -> None:
    """Line by line: it was made safe when it was stored, but a file or a hand may have brought another."""
    for line in (text or "").splitlines():
        show.plain(f"    {show.clean(line)}")


def show_content(content: Content) -> None:
    told = show.fields(content)
    show.pairs([("dedupe", told["dedupe"]), ("headers", told["headers"]), ("body", told["body"])])
    for error in told["errors"]:  # type: ignore[attr-defined]
        show.plain(f"  {show.clean(error.at)}  {show.clean(error.reason)}: {show.clean(error.text)}")
    show_traceback(content.traceback)
    for death in told["deaths"]:  # type: ignore[attr-defined]
        cause = f" (cause {show.clean(death.fingerprint)})" if death.fingerprint else ""
        show.plain(f"  died {show.clean(death.died_at)}  {show.clean(death.reason)}{cause}")
        if death.body is not None:
            show.plain(f"    its body was then: {show.clean(death.body)}")


@app.command()
def retry(
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The id of the message; else a filter.")
    ] = None,
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    state: StateOption = None,
    reason: ReasonOption = None,
    all: All = False,
    number: Number = None,
    reset: Annotated[bool, typer.Option("--reset", help="Set all counters to 0 and clear Failed.")] = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make a message claimable now, or all that match and wait for a retry or are parked."""
    from ..operations import Filter

    if id is not None:
        if type or stream or state or reason or all:
            raise UsageError("Give an ID or a filter, not both; --queue goes with either.")
        with operations(app, url, by=by) as found:
            changes(found.messages.retry(id, queue=queue, number=number, reset=reset, why=why), json)
        return
    if number is not None:
        raise UsageError("--number goes with an ID.")
    wanted = Filter(queue, type, stream, state.value if state else None, reason_number(reason))
    if wanted.is_empty and not all:
        raise UsageError("Give an ID, a filter, or --all for everything that waits for a retry or is parked.")
    with operations(app, url, by=by) as found, show.counting("retrying", json) as progress:
        done = found.messages.retry_many(wanted, reset=reset, why=why, progress=progress)
    many(done, "claimable now", json)


@app.command()
def park(
    id: Id,
    queue: Queue = None,
    number: Number = None,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Hold a message back until `retry`. In a stream it holds up what stands behind it."""
    with operations(app, url, by=by) as found:
        changes(found.messages.park(id, queue=queue, number=number, why=why), json)


@app.command()
def cancel(
    id: Id,
    queue: Queue = None,
    number: Number = None,
    yes: Yes = False,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """End a message without handling it. If a worker holds it, that one is asked."""
    show.confirm(f"Cancel message {id}?", yes)
    with operations(app, url, by=by) as found:
        changes(found.messages.cancel(id, queue=queue, number=number, why=why), json)


@app.command()
def poison(
    id: Id,
    why: Annotated[str, typer.Option("--why", help="Kept with the dead letter.")],
    queue: Queue = None,
    number: Number = None,
    yes: Yes = False,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make a message a dead letter by hand; its stream goes on."""
    show.confirm(f"Make message {id} a dead letter?", yes)
    with operations(app, url, by=by) as found:
        changes(found.messages.poison(id, why, queue=queue, number=number), json)


def changes(done: object, json: bool) -> None:
    """What an order did to each delivery."""
    if json:
        show.document(done)
        return
    for each in done:  # type: ignore[attr-defined]
        where = f" in queue {show.clean(each.queue)}" if each.queue is not None else ""
        show.plain(f"{each.id}{where}: {show.clean(each.what)}")


def many(done: object, what: str, json: bool) -> None:
    """What an order did to many; refusals make it a failure."""
    told = show.fields(done)
    if json:
        show.document(done)
    else:
        show.plain(f"{told['changed']} {what}")
    for each in told["refused"]:  # type: ignore[attr-defined]
        typer.echo(f"holdfast: {show.clean(each.what)}", err=True)
    if told["refused"]:
        raise typer.Exit(show.FAILED)
