"""`holdfast dead`: dead letters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ..errors import UsageError
from . import show
from .filters import All, DeadFilter, Id, Ids, Limit, Number, Queue, Reveal, meant, seconds
from .messages import changes, readable, show_whole, with_content
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from datetime import datetime

    from ..operations import Group

app = typer.Typer(
    help="Dead letters: show, redrive, edit, discard, archive.",
    no_args_is_help=True,
)

Now = Annotated[bool, typer.Option("--now", help="Out of the order of its stream, beside the head.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also those that have ended since: done, discarded, cancelled.")
]
Why = Annotated[str, typer.Option("--why", help="Kept with the dead letter, or with its end.")]


@command(app, "list")
def list_(
    filter: DeadFilter,
    target: Target,
    oldest: Annotated[bool, typer.Option("--oldest", help="Those that died first, first.")] = False,
    limit: Limit = 50,
) -> None:
    """Dead letters, those that died last first."""
    with target.operations() as found:
        at, letters = found.now(), found.dead.list(filter.made(), newest=not oldest, limit=limit)
    if target.json:
        show.document(letters)
        return
    show.table(
        ("id", "queue", "type", "died", "reason", "last failure", "cause", "attempts", "stream", "halts it", "held",
         "number", "error"),
        (
            (e.id, e.queue, e.type, e.died_at, e.reason, e.last_reason if e.last_reason != e.reason else None,
             e.fingerprint, e.starts, e.stream, e.halts, e.held_at is not None, e.seq, e.error)
            for e in letters
        ),
        "No dead letter matches.",
        at=at,
        spare=("halts it", "held", "reason", "stream", "cause", "last failure", "attempts", "number"),
    )  # fmt: skip


@command(app)
def groups(filter: DeadFilter, target: Target, limit: Limit = 50) -> None:
    """Dead letters by cause: how many, since when, and one of each."""
    with target.operations() as found:
        at, listed = found.now(), found.dead.groups(filter.made(), limit=limit)
    if target.json:
        show.document(listed)
        return
    show_groups(listed, at)


def show_groups(listed: Sequence[Group], at: datetime) -> None:
    show.table(
        ("cause", "count", "held", "queue", "type", "reason", "first", "last", "one of them", "its error"),
        (
            (e.fingerprint, e.count, e.held or None, e.queue, e.type, e.reason, e.first_at, e.last_at, e.id,
             (e.error or "")[:200])
            for e in listed
        ),
        "No dead letter matches.",
        at=at,
        spare=("held", "type", "reason", "first", "last"),
    )  # fmt: skip


@command(app, "show")
def show_(id: Id, target: Target, reveal: Reveal = False) -> None:
    """A dead letter with everything known about it."""
    from ..operations.from_rows import failure

    with target.operations() as found:
        letters = [
            (each, readable(found, each, content, reveal, target.json))
            for each, content in found.dead.show(meant(found, id))
        ]
    if target.json:
        show.document(
            [
                with_content(each, content)
                | {"failure": failure(each, content), "failure_text": str(failure(each, content))}
                for each, content in letters
            ]
        )
        return
    for each, content in letters:
        show_whole(each, content)
        show.plain("")


@command(app)
def redrive(
    filter: DeadFilter,
    change: Change,
    target: Target,
    ids: Ids = None,
    all: All = False,
    number: Number = None,
    now: Now = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be redriven.")] = False,
    canary: Annotated[
        int,
        typer.Option(
            "--canary", min=0, help="Redrive so many first; the others only if all of these succeed."
        ),
    ] = 0,
    patience: Annotated[str, typer.Option("--patience", help="How long to wait for the canary.")] = "60s",
    over: Annotated[
        str | None, typer.Option("--over", help="Spread evenly over this time, such as 10m.")
    ] = None,
) -> None:
    """Redrive dead letters: one, some, or all that match.

    In the order of their old positions."""
    if ids and (filter.is_more_than_a_queue or all):
        raise UsageError("Give an ID or a filter, not both; --queue goes with either.")
    if not ids and filter.made().is_empty and not all:
        raise UsageError("Give an ID, a filter, or --all for every dead letter.")
    with target.operations(change.by) as found:
        messages = [meant(found, each) for each in ids or ()]
        wanted = filter.made(messages)
        if dry_run:
            rehearse(found, wanted, target.json)
            return
        if len(messages) == 1 and not canary and over is None:
            changes(found.dead.redrive(messages[0], queue=filter.queue, number=number, now=now), target.json)
            return
        if number is not None:
            raise UsageError("--number goes with one ID, and neither with --canary nor with --over.")
        with show.counting("redriving", target.json) as progress:
            done = found.dead.redrive_many(
                wanted, now=now, over=0.0 if over is None else seconds(over), canary=canary,
                patience=seconds(patience), progress=progress,
            )  # fmt: skip
    show_redriven(done, target.json)
    if (missing := len(set(messages)) - done.changed) > 0:
        show.complain(f"{missing} of them are not dead letters here, are held, or their id is pending.")
        raise typer.Exit(show.FAILED)


def rehearse(found: Any, wanted: Any, json: bool) -> None:
    """What a redrive would do."""
    plan = found.dead.rehearse(wanted)
    if json:
        show.document(plan)
        return
    held = f", {plan.held} held and left alone" if plan.held else ""
    show.plain(f"{show.counted(plan.count, 'dead letter')} would be redriven{held}")
    if plan.groups:
        show_groups(plan.groups, found.now())


def show_redriven(done: Any, json: bool) -> None:
    """What a redrive did; a failed canary makes it a failure."""
    bird = done.canary
    if json:
        show.document(done)
    else:
        if bird is not None:
            show.plain(
                f"canary: {bird.tried} redriven, {bird.ended} ended, {bird.died} died again, {bird.pending} pending"
            )
        show.plain(f"{show.counted(done.changed, 'dead letter')} redriven")
    if bird is not None and not bird.is_well:
        why = "died again" if bird.died else "have not ended in time"
        show.complain(f"some of the canary {why}: the others stay dead letters.")
        raise typer.Exit(show.FAILED)


@command(app)
def edit(
    id: Id,
    change: Change,
    target: Target,
    body: Annotated[str | None, typer.Option("--body", help="The new body, as JSON.")] = None,
    file: Annotated[
        typer.FileText | None, typer.Option("--file", help="A file with the new body; - is standard input.")
    ] = None,
    queue: Queue = None,
    number: Number = None,
    redrive: Annotated[bool, typer.Option("--redrive", help="Also redrive it.")] = False,
    now: Now = False,
) -> None:
    """Give a dead letter another body. The one it died with is kept and shown."""
    if (body is None) == (file is None):
        raise UsageError("Give the new body with --body or with --file.")
    text = body if file is None else file.read()
    with target.operations(change.by) as found:
        message = meant(found, id)
        done = found.dead.edit(message, text or "", queue=queue, number=number, redrive=redrive, now=now)
    changes(done, target.json)


@command(app)
def hold(
    id: Id, why: Why, change: Change, target: Target, queue: Queue = None, number: Number = None
) -> None:
    """Keep a dead letter here.

    No filter or policy redrives it, and it is not archived."""
    with target.operations(change.by) as found:
        message = meant(found, id)
        changes(found.dead.hold(message, why, queue=queue, number=number), target.json)


@command(app)
def unhold(id: Id, change: Change, target: Target, queue: Queue = None, number: Number = None) -> None:
    """End the hold of a dead letter."""
    with target.operations(change.by) as found:
        message = meant(found, id)
        changes(found.dead.unhold(message, queue=queue, number=number), target.json)


@command(app, "export")
def export_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to; - is standard output, .gz is zipped.")
    ],
    filter: DeadFilter,
    target: Target,
) -> None:
    """Write dead letters to a file, complete, one line of JSON each. They stay here."""
    if file == "-" and target.json:
        raise UsageError("Standard output takes the letters or the JSON document: name a file.")
    wanted = filter.made()
    with (
        target.operations() as found,
        _output(file) as output,
        show.counting("exporting", target.json) as progress,
    ):
        count = found.files.export(wanted, output, progress=progress)
    if target.json:
        show.document({"file": file, "count": count})
    elif file != "-":
        show.plain(f"{show.counted(count, 'dead letter')} exported to {show.clean(file)}")


@contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """A new file, readable only by its owner: it holds the bodies of messages."""
    if file == "-":
        yield sys.stdout.buffer
        return
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{file} is there already: give another name.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    try:
        with open(number, "wb") as plain:
            if not file.endswith(".gz"):
                yield plain
                return
            import gzip

            with gzip.GzipFile(fileobj=plain, mode="wb") as zipped:
                yield zipped  # type: ignore[misc]
    except BaseException:
        os.unlink(file)  # half an export looks like a complete one
        raise


@command(app, "import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="From where; - is standard input. May be gzipped.")
    ],
    change: Change,
    target: Target,
    force: Force = False,
) -> None:
    """Store the dead letters of a file.

    Except those that are here already and those that have ended since."""
    with target.operations(change.by) as found, show.counting("importing", target.json) as progress:
        if file == "-":
            done = found.files.load(sys.stdin.buffer, force=force, progress=progress)
        else:
            try:
                source = open(file, "rb")  # noqa: SIM115 - closed below
            except OSError as error:
                raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
            with source:
                done = found.files.load(source, force=force, progress=progress)
    show_imported(done, target.json)


def show_imported(done: Any, json: bool) -> None:
    if json:
        show.document(done)
    else:
        known = f", {done.known} were here already" if done.known else ""
        ended = f", {done.ended} have ended since and were left out (see --force)" if done.ended else ""
        show.plain(f"{done.stored} of {done.lines} stored{known}{ended}")


@command(app)
def archive(
    change: Change,
    target: Target,
    listed: Annotated[bool, typer.Option("--list", help="Only list the files of the archive.")] = False,
) -> None:
    """Archive dead letters that are too old or too many.

    Housekeeping also does it by itself."""
    with target.operations(change.by) as found:
        if listed:
            names = found.files.names()
            if target.json:
                show.document(names)
                return
            for name in names:
                show.plain(show.clean(name))
            return
        with show.counting("archiving", target.json) as progress:
            done = found.files.archive(progress=progress)
    if target.json:
        show.document(done)
        return
    for name in done.files:
        show.plain(show.clean(name))
    kept = f", {done.kept} changed meanwhile and stayed" if done.kept else ""
    show.plain(f"{show.counted(done.count, 'dead letter')} archived{kept}")


@command(app)
def restore(
    file: Annotated[
        str, typer.Argument(metavar="ARCHIVE", help="A file of the archive: its name, path or URL.")
    ],
    change: Change,
    target: Target,
    force: Force = False,
) -> None:
    """Bring back the dead letters of an archived file.

    Except those that have ended since."""
    with target.operations(change.by) as found, show.counting("restoring", target.json) as progress:
        done = found.files.restore(file, force=force, progress=progress)
    show_imported(done, target.json)


@command(app)
def discard(
    id: Id, why: Why, change: Change, target: Target, queue: Queue = None, number: Number = None
) -> None:
    """End a dead letter for good and free its dedupe key. The reason is kept in the history."""
    with target.operations(change.by) as found:
        message = meant(found, id)
        show.confirm(f"Discard dead letter {message}? It cannot be brought back.", change.yes)
        changes(found.dead.discard(message, why, queue=queue, number=number), target.json)
