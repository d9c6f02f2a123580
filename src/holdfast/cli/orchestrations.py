"""`holdfast orchestrations`: instances of orchestrations, their steps and what they wait for."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..errors import UsageError
from . import drawing, show
from .completing import instances as complete_instances
from .completing import orchestrations as complete_names
from .filters import WHOLE_MAX, Limit, Why, seconds
from .options import command
from .target import Change, NamedTarget, Target

if TYPE_CHECKING:
    from ..operations import Commanded, FlowCheck, InstanceDossier, InstanceStatus, RewoundInstance

app = typer.Typer(help="Orchestrations: find, show, signal, cancel instances.", no_args_is_help=True)

Instance = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE",
        help="Its id, the last 8 characters of it, or its beginning.",
        autocompletion=complete_instances,
    ),
]
Execution = Annotated[
    int | None,
    typer.Option(
        "--execution", "-e", min=0, max=WHOLE_MAX, help="Of this execution, not of the current one."
    ),
]
Reveal = Annotated[bool, typer.Option("--reveal", help="Open what is encrypted, with the keys here.")]


class InstanceStatusName(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"


@command(app, "list")
def list_(
    target: Target,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Only of this orchestration.", autocompletion=complete_names),
    ] = None,
    version: Annotated[str | None, typer.Option("--version", "-V", help="Only of this version.")] = None,
    state: Annotated[
        InstanceStatusName | None, typer.Option("--state", "-s", help="Only in this state.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Only with this text in its flow.status.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=TEXT", help="Only with this attribute; may be repeated."),
    ] = None,
    ended: Annotated[
        bool | None, typer.Option("--ended/--open", help="Only those that have ended, or not.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """Instances, those that moved last first."""
    with target.operations() as found:
        at = found.now()
        listed = found.orchestrations.list(
            name=name,
            version=version,
            state=None if state is None else state.value,
            status=status,
            attributes=attributes(attribute or []),
            is_open=None if ended is None else not ended,
            limit=limit,
        )
    if target.json:
        show.document(listed)
        return
    show.table(
        ("instance", "orchestration", "state", "turn", "started", "moved", "status", "attributes", "why"),
        (
            (
                shown_id(e.id),
                e.queue,
                e.state,
                e.turn,
                e.started_at,
                e.ended_at or e.turned_at,
                in_words(e),
                ", ".join(f"{name}={text}" for name, text in e.attributes.items()),
                (e.trouble or "").partition("\n")[0],
            )
            for e in listed
        ),
        "No instance matches.",
        at=at,
        spare=("started", "turn", "attributes", "moved"),
    )


def attributes(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, sign, text = each.partition("=")
        if not sign:
            raise UsageError(f"--attribute {each!r} has no =: write --attribute customer=17.")
        found[name] = text
    return found


def shown_id(id: str) -> UUID | str:
    """An id that is a UUID is shortened in tables, as those of messages are."""
    try:
        return UUID(id)
    except ValueError:
        return id


def in_words(state: InstanceStatus) -> str:
    """What an instance says about itself."""
    if state.is_sealed:
        return "(sealed)"
    match state.status:
        case None:
            return ""
        case dict():
            return ", ".join(f"{name}: {value}" for name, value in state.status.items())
        case _:
            return str(state.status)


@command(app, "show")
def show_(
    instance: Instance,
    target: Target,
    execution: Execution = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Steps that are drawn.")] = 40,
) -> None:
    """An instance: its state and its steps as a timeline.

    And what it waits for."""
    with target.operations() as found:
        at = found.now()
        dossier = found.orchestrations.show(found.orchestrations.named(instance), execution=execution)
    if target.json:
        show.document(dossier)
        return
    print_state(dossier)
    if dossier.steps:
        show.plain("")
        drawing.timeline(dossier.steps, at, limit)
    drawing.progress(dossier.fans, dossier.progress)
    if dossier.unread is not None:
        show.sentence(dossier.unread, "! ", fg="red")
    why = dossier.why[1:] if dossier.state.ended_at is None or dossier.state.trouble is None else ()
    if why:
        show.plain("")
    for each in why:
        show.sentence(each)


def print_state(dossier: InstanceDossier) -> None:
    state = dossier.state
    show.pairs(
        [
            ("instance", state.id),
            ("orchestration", state.queue),
            ("state", state.state),
            ("execution", state.execution or None),
            ("turn", state.turn),
            ("status", in_words(state)),
            ("attributes", ", ".join(f"{name}={text}" for name, text in state.attributes.items())),
            ("started", state.started_at),
            ("moved", state.turned_at),
            ("ended", state.ended_at),
            (
                "journal",
                f"{show.counted(state.entries, 'event')}, {show.counted(state.journal_bytes, 'byte')}",
            ),
        ]
    )
    if state.trouble is not None:
        for n, line in enumerate(state.trouble.splitlines()):
            show.sentence(line, "! " if n == 0 else "    ", fg="red" if n == 0 else None)


@command(app)
def journal(
    instance: Instance,
    target: Target,
    execution: Execution = None,
    reveal: Reveal = False,
    limit: Limit = 200,
) -> None:
    """The events that reached an instance, and its requests."""
    with target.operations() as found:
        id = found.orchestrations.named(instance)
        lines = found.orchestrations.lines(id, execution=execution, reveal=reveal)
    if target.json:
        show.document(lines[:limit])
        return
    drawing.journal(lines[:limit])
    if len(lines) > limit:
        left = show.counted(len(lines) - limit, "later event")
        show.sentence(f"({left} not shown: --limit shows more)", dim=True)


@command(app)
def result(
    instance: Instance,
    target: Target,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Wait so long for its end: 30s, 5m.")
    ] = "0s",
) -> None:
    """What an instance returned, as JSON. Exit code 1 if it failed or has not ended."""
    with target.operations() as found:
        value = found.orchestrations.result(found.orchestrations.named(instance), timeout=seconds(timeout))
    show.document(value)


@command(app)
def signal(
    instance: Annotated[
        str, typer.Argument(metavar="INSTANCE", help="Its whole id.", autocompletion=complete_instances)
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal.")],
    change: Change,
    target: Target,
    body: Annotated[str | None, typer.Option("--body", "-b", metavar="JSON", help="What it says.")] = None,
    why: Why = None,
) -> None:
    """Send a signal. An instance that has not started yet gets it when it does."""
    with target.operations(change.by) as found:
        show_done(found.orchestrations.signal(instance, name, body, why=why), target.json)


@command(app)
def cancel(instance: Instance, change: Change, target: Target, why: Why = None) -> None:
    """Ask an instance to end; its code may undo what it did. Its children and running activities are asked, too."""
    with target.operations(change.by) as found:
        id = found.orchestrations.named(instance)
        show.confirm(f"Cancel instance {id}?", change.yes)
        show_done(found.orchestrations.cancel(id, why=why), target.json)


Because = Annotated[str, typer.Option("--why", help="Kept with the instance and in the audit.")]


@command(app)
def suspend(instance: Instance, why: Because, change: Change, target: Target) -> None:
    """Hold an instance until it is resumed. It loses nothing."""
    with target.operations(change.by) as found:
        show_done(found.orchestrations.suspend(found.orchestrations.named(instance), why), target.json)


@command(app)
def resume(instance: Instance, change: Change, target: Target, why: Why = None) -> None:
    """Let a suspended or paused instance continue."""
    with target.operations(change.by) as found:
        show_done(found.orchestrations.resume(found.orchestrations.named(instance), why=why), target.json)


@command(app)
def terminate(instance: Instance, why: Because, change: Change, target: Target) -> None:
    """End an instance at once, without its code: nothing is undone. Its calls end, its children are cancelled."""
    with target.operations(change.by) as found:
        id = found.orchestrations.named(instance)
        show.confirm(f"Terminate instance {id}? Its code cannot undo anything.", change.yes)
        show_done(found.orchestrations.terminate(id, why), target.json)


@command(app)
def rewind(
    instance: Instance,
    why: Because,
    change: Change,
    target: Target,
    to: Annotated[
        str | None, typer.Option("--to", metavar="STEP", help="Ask for this step again: charge#3, or start.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="STEP", help="Keep the answer of this step, and continue from there."
        ),
    ] = None,
    drop_signals: Annotated[
        bool, typer.Option("--drop-signals", help="Signals that came later do not come again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
) -> None:
    """Go back to an earlier step and continue from there.

    Also after the end. Shows first which effects may repeat.
    """
    with target.operations(change.by) as found:
        of = found.orchestrations
        id = of.named(instance)
        answer = of.rehearse_rewind(id, to=to, after=after, keeps_signals=not drop_signals)
        if not target.json:
            print_rewind(answer)
        if not dry_run:
            show.confirm(f"Rewind instance {id} to {answer.point}?", change.yes)
            at = answer.execution, answer.turn  # else what was shown is not what happens
            answer = of.rewind(id, why, to=to, after=after, keeps_signals=not drop_signals, at=at)
    if target.json:
        show.document(answer)
    elif not dry_run:
        show.sentence(f"instance {id}: rewound to {answer.point}")


def print_rewind(answer: RewoundInstance) -> None:
    show.sentence(
        f"Instance {answer.id} of {answer.queue} is {answer.state}. Back to {answer.point}: "
        f"{show.counted(answer.kept, 'event')} kept, {answer.dropped:,} dropped."
    )
    for title, lines in (
        ("may happen again", answer.repeats), ("asked again", answer.asked_again),
        ("reaches the code again", answer.delivered_again),
    ):  # fmt: skip
        if lines:
            show.sentence(f"{title}: {', '.join(lines)}", "  ")
    for line in answer.notes:
        show.sentence(line, "! ")


@command(app)
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go; it is made.")],
    target: Target,
    instance: Annotated[
        list[str] | None,
        typer.Option("--instance", "-i", metavar="ID", help="Only this one; may be repeated."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Only of this orchestration.", autocompletion=complete_names),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=10_000, help="So many, those that moved last.")
    ] = 200,
    reveal: Reveal = False,
) -> None:
    """Save journals as files that a test replays (docs/testing.md). What is sealed stays so without --reveal."""
    with target.operations() as found:
        of = found.orchestrations
        ids = [of.named(each) for each in instance or []]
        ids = ids or [each.id for each in of.list(name=name, limit=sample) if each.turn]
        folder.mkdir(parents=True, exist_ok=True)
        files = [of.saved(id, reveal=reveal).save(folder) for id in ids]
    if target.json:
        show.document([str(each) for each in files])
    else:
        show.sentence(f"{show.counted(len(files), 'journal')} saved in {folder}")


@command(app)
def check(
    target: NamedTarget,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Only of this orchestration.", autocompletion=complete_names),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Instances whose difference is shown.")
    ] = 10,
) -> None:
    """Check whether this code can continue the open instances. Replays them in memory and changes nothing.

    Exit code 3 if some instance would be paused or has a version that the code does not have.
    """
    with target.operations() as found, show.counting("replaying", target.json) as progress:
        answer = found.orchestrations.check(name=name, progress=progress)
    if target.json:
        show.document(show.fields(answer, "is_well"))
    else:
        print_check(answer, limit)
    if not answer.is_well:
        raise typer.Exit(show.UNHEALTHY)


def print_check(answer: FlowCheck, limit: int) -> None:
    show.sentence(f"{show.counted(answer.checked, 'instance')} replayed: {answer.fit:,} can continue.")
    for queue, count in answer.missing.items():
        show.sentence(
            f"{show.counted(count, 'instance')} of {queue}: this code does not have it.", "! ", fg="red"
        )
    if answer.sealed:
        show.sentence(
            f"{show.counted(answer.sealed, 'journal')} cannot be opened with the keys here.", "! ", fg="red"
        )
    for each in answer.unfit[:limit]:
        show.sentence(f"Instance {each.id} of {each.queue} would be paused: {each.why}", "! ", fg="red")
        for line in each.diff:
            show.plain(f"    {show.clean(line)}")
    if len(answer.unfit) > limit:
        show.plain(f"and {len(answer.unfit) - limit:,} more: --limit shows them")


def show_done(answer: Commanded, json: bool) -> None:
    if json:
        show.document(answer)
    else:
        show.sentence(f"instance {answer.id}: {answer.what}")
