"""`holdfast dead`: dead letters."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ..errors import UsageError
from . import show
from .messages import (
    All,
    ReasonOption,
    Reveal,
    Stream,
    Type,
    _with_content,
    changes,
    numbered,
    readable,
    reason_number,
    show_content,
)
from .show import Id, Json, Limit, Number, Queue, Yes
from .target import App, As, Url, operations

if TYPE_CHECKING:
    from ..operations import Filter

app = typer.Typer(
    help="Dead letters: look into them, bring them back, mend them, hold them, end them, keep them in files.",
    no_args_is_help=True,
)

Now = Annotated[bool, typer.Option("--now", help="Out of the order of its stream, beside the head.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="The ids of messages; else a filter.")
]
DiedOf = Annotated[
    str | None,
    typer.Option("--died-of", help="Only with this reason of the death itself, such as poison-message."),
]
Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", "-f", help="Only of this cause: see `holdfast dead groups`.")
]
Before = Annotated[
    str | None, typer.Option("--before", help="Only died before: 2026-11-16T12:00Z, or 2h for two hours ago.")
]
After = Annotated[str | None, typer.Option("--after", help="Only died after: a moment, or 2h.")]
Text = Annotated[str | None, typer.Option("--text", help="Only with this text in one of the errors.")]
Redriven = Annotated[
    bool | None,
    typer.Option("--redriven/--not-redriven", help="Only those that were redriven before, or not."),
]
Held = Annotated[bool | None, typer.Option("--held/--not-held", help="Only those that are held, or not.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also those that have ended since: done, discarded, cancelled.")
]
Why = Annotated[str, typer.Option("--why", help="Kept with the dead letter, or with its end.")]

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(text: str) -> float:
    """`90`, `90s`, `10m`, `2h` or `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text)
    if match is None:
        raise UsageError(f"{text!r} is not a length of time: write 90s, 10m, 2h or 7d.")
    return float(match[1]) * UNITS[match[2] or "s"]


def moment(text: str | None, option: str) -> datetime | None:
    """An instant, or so long ago."""
    if text is None:
        return None
    from datetime import UTC, timedelta

    from ..clock import wall_clock

    if re.fullmatch(r"\d+(?:\.\d+)?\s*[smhd]", text):
        return wall_clock() - timedelta(seconds=seconds(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is not a moment: write 2026-11-16T12:00Z, or 2h for two hours ago."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def wanted(
    queue: str | None, type: str | None, stream: str | None, reason: str | None, died_of: str | None,
    fingerprint: str | None, before: str | None, after: str | None, text: str | None, redriven: bool | None,
    held: bool | None, ids: list[str] | None = None,
) -> Filter:  # fmt: skip
    """What the options ask for."""
    from ..operations import Filter
    from ..operations.desk import as_id

    return Filter(
        queue=queue,
        type=type,
        stream=stream,
        reason=reason_number(reason),
        died_of=reason_number(died_of),
        fingerprint=fingerprint,
        died_before=moment(before, "--before"),
        died_after=moment(after, "--after"),
        text=text,
        redriven=redriven,
        held=held,
        ids=tuple(as_id(each) for each in ids) if ids else None,
    )


@app.command("list")
def list_(
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    reason: ReasonOption = None,
    died_of: DiedOf = None,
    fingerprint: Fingerprint = None,
    before: Before = None,
    after: After = None,
    text: Text = None,
    redriven: Redriven = None,
    held: Held = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="Those that died first, first.")] = False,
    limit: Limit = 50,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Dead letters, those that died last first."""
    filter = wanted(queue, type, stream, reason, died_of, fingerprint, before, after, text, redriven, held)
    with operations(app, url) as found:
        letters = found.dead.list(filter, newest=not oldest, limit=limit)
    if json:
        show.document(letters)
        return
    show.table(
        ("id", "queue", "type", "died", "reason", "last failure", "cause", "attempts", "stream", "halts it", "held",
         "number"),
        (
            (e.id, e.queue, e.type, e.died_at, e.reason, e.last_reason, e.fingerprint, e.attempts, e.stream, e.halts,
             e.held_at is not None, e.seq)
            for e in letters
        ),
        "No dead letter matches.",
    )  # fmt: skip


@app.command()
def groups(
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    reason: ReasonOption = None,
    died_of: DiedOf = None,
    before: Before = None,
    after: After = None,
    text: Text = None,
    redriven: Redriven = None,
    held: Held = None,
    limit: Limit = 50,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Dead letters by cause: how many, since when, and one of each."""
    filter = wanted(queue, type, stream, reason, died_of, None, before, after, text, redriven, held)
    with operations(app, url) as found:
        listed = found.dead.groups(filter, limit=limit)
    if json:
        show.document(listed)
        return
    show_groups(listed)


def show_groups(listed: Any) -> None:
    show.table(
        ("cause", "count", "held", "queue", "type", "reason", "first", "last", "one of them", "its error"),
        (
            (e.fingerprint, e.count, e.held or None, e.queue, e.type, e.reason, e.first_at, e.last_at, e.id,
             (e.error or "")[:80])
            for e in listed
        ),
        "No dead letter matches.",
    )  # fmt: skip


@app.command("show")
def show_(id: Id, reveal: Reveal = False, app: App = None, url: Url = None, json: Json = False) -> None:
    """A dead letter with everything known about it."""
    from ..operations.from_rows import failure

    with operations(app, url) as found:
        letters = [
            (each, readable(found, each, content, reveal, json)) for each, content in found.dead.show(id)
        ]
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
        show.pairs(numbered(each))
        show_content(content)
        show.plain("")


@app.command()
def redrive(
    ids: Ids = None,
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    reason: ReasonOption = None,
    died_of: DiedOf = None,
    fingerprint: Fingerprint = None,
    before: Before = None,
    after: After = None,
    text: Text = None,
    redriven: Redriven = None,
    all: All = False,
    number: Number = None,
    now: Now = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would come back.")] = False,
    canary: Annotated[
        int, typer.Option("--canary", min=0, help="So many first; the others only if all of those end well.")
    ] = 0,
    patience: Annotated[str, typer.Option("--patience", help="How long to wait for the canary.")] = "60s",
    over: Annotated[
        str | None, typer.Option("--over", help="Spread evenly over this time, such as 10m.")
    ] = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Bring dead letters back: one, some, or all that match, in the order of their old positions."""
    filter = wanted(
        queue, type, stream, reason, died_of, fingerprint, before, after, text, redriven, None, ids
    )  # fmt: skip
    options = (type, stream, reason, died_of, fingerprint, before, after, text, redriven)
    filtered = any(each is not None for each in options)
    if ids and (filtered or all):
        raise UsageError("Give an ID or a filter, not both; --queue goes with either.")
    if filter.is_empty and not all:
        raise UsageError("Give an ID, a filter, or --all for every dead letter.")
    with operations(app, url, by=by) as found:
        if dry_run:
            told = found.dead.rehearse(filter)
            if json:
                show.document(told)
                return
            show.plain(
                f"{told.count} would be redriven" + (f", {told.held} are held and stay" if told.held else "")
            )
            if told.groups:
                show_groups(told.groups)
            return
        if ids and len(ids) == 1 and not canary and over is None:
            changes(found.dead.redrive(ids[0], queue=queue, number=number, now=now), json)
            return
        if number is not None:
            raise UsageError("--number goes with one ID, and neither with --canary nor with --over.")
        with show.counting("redriving", json) as progress:
            done = found.dead.redrive_many(
                filter, now=now, over=0.0 if over is None else seconds(over), canary=canary,
                patience=seconds(patience), progress=progress,
            )  # fmt: skip
    tell_redriven(done, json)
    if ids and done.changed < len(set(ids)):
        missing = len(set(ids)) - done.changed
        typer.echo(
            f"holdfast: {missing} of them are no dead letters here, are held, or their id is pending.",
            err=True,
        )
        raise typer.Exit(show.FAILED)


def tell_redriven(done: Any, json: bool) -> None:
    """What a redrive did; a canary that is not well makes it a failure."""
    bird = done.canary
    if json:
        show.document(done)
    else:
        if bird is not None:
            show.plain(
                f"canary: {bird.tried} redriven, {bird.ended} ended, {bird.died} died again, {bird.pending} pending"
            )
        show.plain(f"{done.changed} redriven")
    if bird is not None and not bird.is_well:
        why = "died again" if bird.died else "have not ended in time"
        typer.echo(f"holdfast: some of the canary {why}: the others stay where they are.", err=True)
        raise typer.Exit(show.FAILED)


@app.command()
def edit(
    id: Id,
    body: Annotated[str | None, typer.Option("--body", help="The new body, as JSON.")] = None,
    file: Annotated[
        typer.FileText | None, typer.Option("--file", help="A file with the new body; - is standard input.")
    ] = None,
    queue: Queue = None,
    number: Number = None,
    redrive: Annotated[bool, typer.Option("--redrive", help="Also bring it back.")] = False,
    now: Now = False,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give a dead letter another body. The one it died with is kept and shown."""
    if (body is None) == (file is None):
        raise UsageError("Give the new body with --body or with --file.")
    text = body if file is None else file.read()
    with operations(app, url, by=by) as found:
        changes(found.dead.edit(id, text or "", queue=queue, number=number, redrive=redrive, now=now), json)


@app.command()
def hold(
    id: Id,
    why: Why,
    queue: Queue = None,
    number: Number = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Keep a dead letter: no filter or policy redrives it, and it is not archived."""
    with operations(app, url, by=by) as found:
        changes(found.dead.hold(id, why, queue=queue, number=number), json)


@app.command()
def unhold(
    id: Id,
    queue: Queue = None,
    number: Number = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Let a dead letter go that was held."""
    with operations(app, url, by=by) as found:
        changes(found.dead.unhold(id, queue=queue, number=number), json)


@app.command("export")
def export_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to; - is standard output, .gz is zipped.")
    ],
    queue: Queue = None,
    type: Type = None,
    stream: Stream = None,
    reason: ReasonOption = None,
    died_of: DiedOf = None,
    fingerprint: Fingerprint = None,
    before: Before = None,
    after: After = None,
    text: Text = None,
    redriven: Redriven = None,
    held: Held = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Write dead letters to a file, complete, one line of JSON each. They stay here."""
    filter = wanted(queue, type, stream, reason, died_of, fingerprint, before, after, text, redriven, held)
    if file == "-" and json:
        raise UsageError("Standard output takes the letters or the JSON document: name a file.")
    with operations(app, url) as found, _output(file) as target, show.counting("exporting", json) as progress:
        count = found.files.export(filter, target, progress=progress)
    if json:
        show.document({"file": file, "count": count})
    elif file != "-":
        show.plain(f"{count} exported to {show.clean(file)}")


@contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """A file that is not there yet, readable for its owner alone: it holds what messages carry."""
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
        os.unlink(file)  # half of an export looks like a whole one
        raise


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="From where; - is standard input. May be gzipped.")
    ],
    force: Force = False,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Store the dead letters of a file, but for those that are here already and those that have ended since."""
    with operations(app, url, by=by) as found, show.counting("importing", json) as progress:
        if file == "-":
            done = found.files.load(sys.stdin.buffer, force=force, progress=progress)
        else:
            try:
                source = open(file, "rb")  # noqa: SIM115 - closed below
            except OSError as error:
                raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
            with source:
                done = found.files.load(source, force=force, progress=progress)
    tell_imported(done, json)


def tell_imported(done: Any, json: bool) -> None:
    if json:
        show.document(done)
    else:
        known = f", {done.known} were here already" if done.known else ""
        ended = f", {done.ended} have ended since and were left out (see --force)" if done.ended else ""
        show.plain(f"{done.stored} of {done.lines} stored{known}{ended}")


@app.command()
def archive(
    listed: Annotated[bool, typer.Option("--list", help="Only list the files of the archive.")] = False,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Archive the dead letters that are too old or too many now; housekeeping does it by itself."""
    with operations(app, url) as found:
        if listed:
            names = found.files.names()
            if json:
                show.document(names)
                return
            for name in names:
                show.plain(show.clean(name))
            return
        with show.counting("archiving", json) as progress:
            done = found.files.archive(progress=progress)
    if json:
        show.document(done)
        return
    for name in done.files:
        show.plain(show.clean(name))
    show.plain(
        f"{done.count} archived" + (f", {done.kept} changed meanwhile and stayed" if done.kept else "")
    )


@app.command()
def restore(
    file: Annotated[
        str, typer.Argument(metavar="ARCHIVE", help="A file of the archive: its name, path or URL.")
    ],
    force: Force = False,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Bring back the dead letters of an archive's file, but for those that have ended since."""
    with operations(app, url, by=by) as found, show.counting("restoring", json) as progress:
        done = found.files.restore(file, force=force, progress=progress)
    tell_imported(done, json)


@app.command()
def discard(
    id: Id,
    why: Why,
    queue: Queue = None,
    number: Number = None,
    yes: Yes = False,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """End a dead letter for good and free its dedupe key. The reason is kept in the history."""
    show.confirm(f"Discard dead letter {id}? It cannot be brought back.", yes)
    with operations(app, url, by=by) as found:
        changes(found.dead.discard(id, why, queue=queue, number=number), json)
