"""`holdfast messages`: pending messages, and those that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import show
from .completing import ids as complete_ids
from .filters import (
    ID_HELP,
    All,
    Id,
    Limit,
    MessageFilter,
    Number,
    Queue,
    Reveal,
    Why,
    meant,
    moment,
    seconds,
)
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from datetime import datetime

    from ..operations import Content, EndedMessage, Operations

app = typer.Typer(
    help="Messages: find, show, retry, park, cancel them.",
    no_args_is_help=True,
)


@command(app, "list")
def list_(
    filter: MessageFilter,
    target: Target,
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest first.")] = False,
    ended: Annotated[
        bool,
        typer.Option("--ended", help="Those that have ended: of a --subject, --late, or --since a moment."),
    ] = False,
    late: Annotated[
        str | None,
        typer.Option(
            "--late", metavar="LENGTH", help="With --ended: those that began later than 5m, latest first."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="With --ended: those that ended after a moment, or 2h ago.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, max=10_000, help="How many at most: else 50, with --ended 100."),
    ] = None,
) -> None:
    """Pending messages, the newest first.

    With --ended those that have ended."""
    if ended:
        if oldest and late is not None:
            raise UsageError("--late shows the latest first: --oldest does not go with it.")
        _list_ended(filter, target, late, since, not oldest, limit or 100)
        return
    if late is not None or since is not None:
        raise UsageError(
            "--late and --since go with --ended; `holdfast messages stuck` shows what waits too long."
        )
    limit = limit or 50
    with target.operations() as found:
        at, deliveries = found.now(), found.messages.find(filter.made(), newest=not oldest, limit=limit)
    if target.json:
        show.document(deliveries)
        return
    show.table(
        ("id", "queue", "type", "state", "stream", "subject", "attempts", "claimable", "reason"),
        (
            (
                e.id,
                e.queue,
                e.type,
                e.state,
                e.stream,
                e.subject,
                e.attempts or None,
                e.claimable_at,
                e.reason if e.has_failed else None,
            )
            for e in deliveries
        ),
        "No pending message matches.",
        at=at,
        spare=("claimable", "stream", "reason", "attempts", "subject"),
    )


def _list_ended(
    filter: MessageFilter, target: Target, late: str | None, since: str | None, newest: bool, limit: int
) -> None:
    allowed, after = None if late is None else seconds(late), moment(since, "--since")
    with target.operations() as found:
        at = found.now()
        lines = found.messages.ended(filter.made(), late=allowed, since=after, newest=newest, limit=limit)
    if target.json:
        show.document(lines)
        return
    if late is not None:
        _show_late(lines, at)
        return
    show.table(
        ("id", "queue", "type", "subject", "outcome", "ended", "attempts", "failures", "stream", "why"),
        (
            (
                e.id,
                e.queue,
                e.type,
                e.subject,
                e.outcome,
                e.ended_at,
                e.attempts,
                e.failures or None,
                e.stream,
                e.why,
            )
            for e in lines
        ),
        "No message that has ended matches.",
        at=at,
        spare=("why", "stream", "failures", "attempts"),
    )


@command(app)
def stuck(
    target: Target,
    older: Annotated[
        str, typer.Option("--older", metavar="LENGTH", help="Due longer ago than this: 90s, 10m, 2h, 7d.")
    ] = "1h",
    queue: Queue = None,
    limit: Limit = 50,
) -> None:
    """Messages that were due long ago, the oldest first.

    No worker has them."""
    length = seconds(older)
    with target.operations() as found:
        listed = found.messages.stuck(older=length, queue=queue, limit=limit)
    if target.json:
        show.document([{**show.fields(e.delivery), "due_at": e.due_at, "age": e.age} for e in listed])
        return
    show.table(
        ("id", "queue", "type", "state", "due for", "attempts", "error"),
        (
            (
                e.delivery.id,
                e.delivery.queue,
                e.delivery.type,
                e.delivery.state,
                show.age(e.age),
                e.delivery.attempts or None,
                e.delivery.error,
            )
            for e in listed
        ),
        f"No message was due longer ago than {older} and is still pending.",
        spare=("type", "attempts"),
    )


def _show_late(lines: list[EndedMessage], at: datetime) -> None:
    show.table(
        ("id", "queue", "type", "subject", "due", "started", "late", "attempts", "outcome", "outage"),
        (
            (
                e.id,
                e.queue,
                e.type,
                e.subject,
                e.due_at,
                e.started_at,
                show.age(e.lateness),
                e.attempts,
                e.outcome,
                e.outage,
            )
            for e in lines
        ),
        "No message that has ended began so late.",
        at=at,
        spare=("attempts", "started", "subject", "outcome", "type"),
    )


@command(app, "show")
def show_(id: Id, target: Target, reveal: Reveal = False) -> None:
    """Everything about a message, in all its queues.

    Its counters, errors, headers and body."""
    with target.operations() as found:
        dossier = found.messages.show(meant(found, id))
        pending = [
            (each, readable(found, each, content, reveal, target.json)) for each, content in dossier.pending
        ]
        dead = [(each, readable(found, each, content, reveal, target.json)) for each, content in dossier.dead]
    if target.json:
        show.document(
            {
                "id": dossier.id,
                "pending": [with_content(each, content) for each, content in pending],
                "dead": [with_content(each, content) for each, content in dead],
                "ended": dossier.ended,
            }
        )
        return
    for each, content in [*pending, *dead]:
        show_whole(each, content)
        show.plain("")
    for ended in dossier.ended:
        show.pairs([("id", dossier.id), *show.fields(ended).items()])
        show.plain("")


def numbered(each: object) -> list[tuple[str, Any]]:
    """Everything about a message except its error, with the number that distinguishes it from others with its id."""
    fields = show.fields(each)
    fields["attempts"] = getattr(each, "starts", fields["attempts"])
    return [
        ("number", fields["seq"]),
        *((n, value) for n, value in fields.items() if n not in ("seq", "error")),
    ]


def readable(found: Operations, each: Any, content: Content, reveal: bool, json: bool) -> Content:
    """An encrypted body as it is shown: for people the key's name, in JSON the stored text; opened with --reveal."""
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


def with_content(each: object, content: Content) -> dict[str, object]:
    """A message with its contents, for JSON."""
    fields = show.fields(content) | {"body": show.raw(content.body), "headers": show.raw(content.headers)}
    return show.fields(each) | fields


def show_traceback(text: str | None) -> None:
    """Line by line. It was made safe when it was stored, but an import or a manual change may not be."""
    for line in (text or "").splitlines():
        show.plain(f"    {show.clean(line)}")


def show_whole(each: object, content: Content) -> None:
    """Everything about a delivery or a dead letter, for people."""
    carried = [("dedupe", content.dedupe), ("headers", content.headers), ("body", content.body)]
    show.pairs([*numbered(each), *carried])
    for error in content.errors:
        show.sentence(f"{show.clean(error.at)}  {show.clean(error.reason)}: {error.text}", "  ")
    show_traceback(content.traceback)
    for death in content.deaths:
        cause = f" (cause {death.fingerprint})" if death.fingerprint else ""
        show.sentence(f"died {show.clean(death.died_at)}  {show.clean(death.reason)}{cause}", "  ")
        if death.body is not None:
            show.sentence(f"its body was then: {death.body}", "    ")


@command(app)
def retry(
    filter: MessageFilter,
    change: Change,
    target: Target,
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help=f"{ID_HELP} Else a filter.", autocompletion=complete_ids),
    ] = None,
    all: All = False,
    number: Number = None,
    reset: Annotated[bool, typer.Option("--reset", help="Set all counters to 0 and clear Failed.")] = False,
    why: Why = None,
) -> None:
    """Make a message claimable now, or all that match.

    Of those that match: the ones that wait for a retry or are parked."""
    if id is not None:
        if filter.is_more_than_a_queue or all:
            raise UsageError("Give an ID or a filter, not both; --queue goes with either.")
        with target.operations(change.by) as found:
            done = found.messages.retry(
                meant(found, id), queue=filter.queue, number=number, reset=reset, why=why
            )
        changes(done, target.json)
        return
    if number is not None:
        raise UsageError("--number goes with an ID.")
    wanted = filter.made()
    if wanted.is_empty and not all:
        raise UsageError("Give an ID, a filter, or --all for everything that waits for a retry or is parked.")
    with target.operations(change.by) as found, show.counting("retrying", target.json) as progress:
        many(
            found.messages.retry_many(wanted, reset=reset, why=why, progress=progress),
            "claimable now",
            target.json,
        )


@command(app)
def park(
    id: Id, change: Change, target: Target, queue: Queue = None, number: Number = None, why: Why = None
) -> None:
    """Hold a message back until `retry`. In a stream it blocks the messages behind it."""
    with target.operations(change.by) as found:
        done = found.messages.park(meant(found, id), queue=queue, number=number, why=why)
    changes(done, target.json)


@command(app)
def move(
    id: Id,
    change: Change,
    target: Target,
    at: Annotated[
        str | None, typer.Option("--at", help="'2026-03-28 12:00 Europe/Berlin'; UTC without a zone.")
    ] = None,
    delay: Annotated[str | None, typer.Option("--in", help="From now: 90s, 10m, 2h, 3d.")] = None,
    why: Why = None,
) -> None:
    """Give a scheduled message another time, until it falls due."""
    with target.operations(change.by) as found:
        message = meant(found, id)
        until = None if at is None else found.schedules.moment(at)
        passed = None if delay is None else seconds(delay)
        due = found.messages.move(message, until, delay=passed, why=why)
    if target.json:
        show.document({"id": message, "due_at": due})
    else:
        show.sentence(f"message {message}: due at {show.clean(due)} UTC")


@command(app)
def cancel(
    id: Id, change: Change, target: Target, queue: Queue = None, number: Number = None, why: Why = None
) -> None:
    """End a message without handling it. A worker that holds it is asked to cancel."""
    with target.operations(change.by) as found:
        message = meant(found, id)
        show.confirm(f"Cancel message {message}?", change.yes)
        changes(found.messages.cancel(message, queue=queue, number=number, why=why), target.json)


@command(app)
def poison(
    id: Id,
    why: Annotated[str, typer.Option("--why", help="Kept with the dead letter.")],
    change: Change,
    target: Target,
    queue: Queue = None,
    number: Number = None,
) -> None:
    """Make a message a dead letter by hand; its stream continues."""
    with target.operations(change.by) as found:
        message = meant(found, id)
        show.confirm(f"Make message {message} a dead letter?", change.yes)
        changes(found.messages.poison(message, why, queue=queue, number=number), target.json)


def changes(done: Any, json: bool) -> None:
    """What a command did to each delivery, with the whole id."""
    if json:
        show.document(done)
        return
    for each in done:
        where = f" in queue {each.queue}" if each.queue is not None else ""
        show.sentence(f"{each.id}{where}: {each.what}")


def many(done: Any, what: str, json: bool) -> None:
    """What a command did to many; refusals make it a failure."""
    if json:
        show.document(done)
    else:
        show.plain(f"{show.counted(done.changed, 'message')} {what}")
    for each in done.refused:
        show.complain(each.what)
    if done.refused:
        raise typer.Exit(show.FAILED)
