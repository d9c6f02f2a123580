"""`holdfast requests`: what other systems must answer by a deadline."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from ..errors import UsageError
from . import show
from .completing import requests as complete_requests
from .filters import Limit, Reveal, seconds
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from ..operations import Operations, RequestLine, RequestResult

app = typer.Typer(
    help="Requests with deadlines: which wait, which failed. Resolve, extend, accept, cancel.",
    no_args_is_help=True,
)

HELP = "The id of the request: all of it, its last 8 characters, or an unambiguous beginning."
Id = Annotated[str, typer.Argument(metavar="ID", help=HELP, autocompletion=complete_requests)]
Why = Annotated[str, typer.Option("--why", help="Kept in the audit.")]


class StateName(StrEnum):
    """The states of a request."""

    open = "open"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


@command(app, "list")
def list_(
    target: Target,
    state: Annotated[StateName | None, typer.Option("--state", "-s", help="Only in this state.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", "-k", help="Only of this kind.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only about this.")] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Only those with a late result that nobody has accepted.")
    ] = False,
    limit: Limit = 50,
) -> None:
    """Requests, open ones first.

    Of the open ones those that must be answered next, then those that ended last."""
    with target.operations() as found:
        wanted = None if state is None else state.value
        at = found.now()
        lines = found.requests.list(state=wanted, kind=kind, subject=subject, late=late, limit=limit)
    if target.json:
        show.document(lines)
        return
    show.table(
        ("id", "kind", "variant", "subject", "state", "deadline", "ended", "results", "late", "why"),
        (
            (
                e.id, e.kind, e.variant, e.subject, state_of(e), e.deadline, e.ended_at, e.results or None,
                e.late_results or None, e.reason,
            )
            for e in lines
        ),
        "No request matches.",
        at=at,
        spare=("late", "why", "kind", "ended", "variant", "results"),
    )  # fmt: skip


def state_of(line: RequestLine) -> str:
    if line.accepted_at is not None:
        return "accepted"
    return "delayed" if line.state == "open" and line.delayed_at is not None else line.state


@command(app, "show")
def show_(id: Id, target: Target, reveal: Reveal = False) -> None:
    """Everything about a request, with every result."""
    with target.operations() as found:
        at, dossier = found.now(), found.requests.show(meant(found, id), reveal=reveal)
    if target.json:
        show.document(
            show.fields(dossier.request)
            | {"type": dossier.type, "stream": dossier.stream, "body": show.raw(dossier.body)}
            | {"all_results": [show.fields(e) | {"body": show.raw(e.body)} for e in dossier.results]}
        )
        return
    fields = show.fields(dossier.request)
    show.pairs(
        [
            *fields.items(),
            ("sent as", dossier.type),
            ("stream", dossier.stream),
            ("body", readable(dossier.body)),
        ]
    )
    if not dossier.results:
        return
    show.plain("")
    show.table(
        ("result", "received", "is", "decided", "error", "text"),
        ((e.id, e.received_at, e.standing, e.decided, e.failed, readable(e.body)) for e in dossier.results),
        "",
        at=at,
    )


def readable(body: str | None) -> str | None:
    """A body for people; of one that is encrypted the key's name."""
    from ..bodies.keys import key_of

    key = None if body is None else key_of(body)
    return body if key is None else f"(sealed with key {key}; --reveal opens it)"


@command(app)
def resolve(
    id: Id,
    change: Change,
    target: Target,
    body: Annotated[str | None, typer.Option("--body", help="The result, as JSON.")] = None,
    file: Annotated[
        typer.FileText | None, typer.Option("--file", help="A file with the result; - is standard input.")
    ] = None,
    failed: Annotated[str | None, typer.Option("--failed", help="It failed, and why.")] = None,
    why: Annotated[str | None, typer.Option("--why", help="Kept in the audit.")] = None,
) -> None:
    """Give a result by hand. The first one in time decides; after the deadline it is kept as late."""
    if (body is not None) + (file is not None) > 1 or (body is None and file is None and failed is None):
        raise UsageError("Give the result with --body or with --file, or say with --failed what went wrong.")
    text = body if file is None else file.read()
    with target.operations(change.by) as found:
        request = meant(found, id)
        standing = found.requests.resolve(request, read(text), failed=failed, why=why)
        line = found.requests.show(request).request
    said = {
        "decisive": f"request {request} is {line.state}",
        "late": f"request {request} has timed out: the result is kept as late",
        "duplicate": f"request {request} had ended: the result is kept, and changes nothing",
    }
    show_done(line, said[standing.value], target.json, standing=standing.value)


def read(text: str | None) -> Any:
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"The result is not JSON: {error}. Put a text in quotes.") from None


@command(app)
def extend(
    id: Id,
    longer: Annotated[str, typer.Argument(metavar="TIME", help="How much more time: 90s, 10m, 2h, 1d.")],
    why: Why,
    change: Change,
    target: Target,
) -> None:
    """Give an open request more time."""
    with target.operations(change.by) as found:
        request = meant(found, id)
        until = found.requests.extend(request, seconds(longer), why=why)
        line = found.requests.show(request).request
    show_done(line, f"request {request} may be answered until {until:%Y-%m-%d %H:%M:%S} UTC", target.json)


@command(app)
def accept(
    id: Id,
    why: Why,
    change: Change,
    target: Target,
    result: Annotated[
        str | None, typer.Option("--result", help="Which late result, by its id; else the first good one.")
    ] = None,
) -> None:
    """Complete a request that has timed out with a late result, once. Its hook `completed` is called."""
    with target.operations(change.by) as found:
        request = meant(found, id)
        chosen = None if result is None else result_of(found.requests.show(request).results, result)
        about = found.requests.show(request).request
        what = f"{about.kind}, {about.subject or 'no subject'}"
        show.confirm(f"Accept a late result of request {request} ({what})?", change.yes)
        accepted = found.requests.accept(request, chosen, why=why)
        line = found.requests.show(request).request
    show_done(
        line, f"request {request} is completed with its late result {accepted}", target.json, result=accepted
    )


def result_of(results: list[RequestResult] | tuple[RequestResult, ...] | Any, text: str) -> UUID:
    """A result by its id, or by the end of it as tables show it."""
    fit = [each.id for each in results if str(each.id).endswith(text.lower())]
    if len(fit) != 1:
        raise UsageError(
            f"{text!r} names {len(fit)} results of this request: `holdfast requests show` lists them."
        )
    return fit[0]


@command(app)
def cancel(id: Id, why: Why, change: Change, target: Target) -> None:
    """End an open request: no result is waited for any more. Its hook `failed` is called."""
    with target.operations(change.by) as found:
        request = meant(found, id)
        shown = found.requests.show(request).request
        show.confirm(f"Cancel request {request} ({shown.kind}, {shown.subject or 'no subject'})?", change.yes)
        found.requests.cancel(request, why=why)
        line = found.requests.show(request).request
    show_done(line, f"request {request} is cancelled", target.json)


def meant(found: Operations, id: str) -> UUID:
    """The request that an id names, given whole or in part."""
    return found.requests.named(id)


def show_done(line: RequestLine, said: str, json: bool, **more: object) -> None:
    if json:
        show.document(show.fields(line) | more)
    else:
        show.sentence(said)
