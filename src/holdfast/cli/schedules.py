"""`holdfast schedules`: what recurs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import show
from .filters import Limit, Why
from .options import command
from .target import Change, Json, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..operations.schedule_states import Next
    from ..operations.schedules import Schedules

app = typer.Typer(help="Schedules: what recurs, what is next, what was left out.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
Names = Annotated[str | None, typer.Argument(metavar="NAME", help="The schedule.")]
Prefix = Annotated[str | None, typer.Option("--prefix", help="All schedules whose names begin with this.")]
State = Annotated[str | None, typer.Option("--state", help="waiting, due, paused, failed, over or orphaned.")]
Count = Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")]
Moment = Annotated[
    str, typer.Argument(metavar="MOMENT", help="'2026-03-28 12:00 Europe/Berlin'; UTC without a zone.")
]


@command(app, "list")
def list_(target: Target, prefix: Prefix = None, state: State = None, limit: Limit = 50) -> None:
    """Schedules by name: when each is next, and what it has fired."""
    with target.operations() as found:
        at, states = found.now(), found.schedules.list(prefix=prefix or "", state=state, limit=limit)
    if target.json:
        show.document(list(states))
        return
    show.table(
        ("name", "state", "next", "rule", "last", "fired", "left out", "error"),
        (
            (e.name, e.state, e.next_at, e.words, e.last_at, e.fired or None, e.left_out or None, e.error)
            for e in states
        ),
        "There are no such schedules." if prefix or state else "There are no schedules.",
        at=at,
        spare=("left out", "last", "fired"),
    )


@command(app, "show")
def show_(name: Name, target: Target, count: Count = 5) -> None:
    """One schedule: its rule, and what comes next.

    And what was left out, and why."""
    with target.operations() as found:
        dossier = found.schedules.show(name, next=count)
    if target.json:
        show.document(dossier)
        return
    state = dossier.state
    show.pairs(
        (
            ("name", state.name),
            ("state", state.state),
            ("rule", state.words),
            ("type", state.type),
            ("queue", state.queue),
            ("stream", state.stream),
            ("set by", "code" if state.origin == "code" else "a call at run time"),
            ("missed ones", _missed(state)),
            ("overlap", state.overlap),
            ("last", state.last_key),
            ("fired", state.fired or None),
            ("left out", state.left_out or None),
            ("paused", state.paused_why or state.paused_at),
            ("error", state.error),
        )
    )
    if dossier.next:
        show.plain("")
        coming(dossier.next)
    if dossier.left_out:
        show.plain("")
        show.table(
            ("noted", "first", "last", "count", "why"),
            ((e.at, e.first, e.last, e.count, e.why) for e in dossier.left_out),
            "",
        )


def _missed(state: Any) -> str:
    parts = [state.misfire]
    if state.misfire == "all":
        parts.append("without a cap" if state.cap is None else f"at most {state.cap}")
    if state.misfire == "skip":
        parts.append(f"later than {state.grace:g} s")
    if state.max_late is not None:
        parts.append(f"none later than {state.max_late:g} s")
    return ", ".join(parts)


def coming(found: Sequence[Next]) -> None:
    show.table(
        ("occurrence", "local", "at (UTC)", "why"),
        ((e.key, e.local, show.clean(e.due), e.note) for e in found),
        "It has no next occurrence.",
    )


@command(app, "next")
def next_(name: Name, target: Target, count: Count = 10) -> None:
    """The next occurrences, with notes on clock changes."""
    with target.operations() as found:
        listed = found.schedules.next(name, count)
    if target.json:
        show.document(list(listed))
    else:
        coming(listed)


@app.command()
def explain(
    rule: Annotated[
        str, typer.Argument(metavar="RULE", help="'0 9 * * MON-FRI', or 'daily 02:30 in Europe/Berlin'.")
    ],
    zone: Annotated[str, typer.Option("--zone", help="Of a cron expression.")] = "UTC",
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="MOMENT", help="'2026-03-28 12:00 Europe/Berlin'; else now."),
    ] = None,
    count: Count = 5,
    as_json: Json = False,
) -> None:
    """A rule in words, and when it occurs next. It needs no database."""
    from ..clock import wall_clock
    from ..operations.schedules import explained

    text, words, listed = explained(rule, after or wall_clock(), zone=zone, count=count)
    if as_json:
        show.document({"rule": text, "words": words, "next": list(listed)})
        return
    show.sentence(f"{words[0].upper()}{words[1:]}.")
    coming(listed)


@command(app)
def why(
    name: Name,
    target: Target,
    key: Annotated[str | None, typer.Argument(metavar="OCCURRENCE", help="Its key, 2026-03-29.")] = None,
) -> None:
    """Say why a schedule does or does not fire.

    With a key: what became of that occurrence."""
    with target.operations() as found:
        sentences = found.schedules.why(name, key)
    if target.json:
        show.document({"name": name, "why": list(sentences)})
        return
    for each in sentences:
        show.sentence(each)


@command(app)
def pause(change: Change, target: Target, name: Names = None, prefix: Prefix = None, why: Why = None) -> None:
    """Fire nothing until it is resumed.

    Occurrences that fall due in that time are left out, with a note."""
    with target.operations(change.by) as found:
        plans = found.schedules
        _each(plans, name, prefix, lambda each: plans.pause(each, why=why), "paused", target.json)


@command(app)
def resume(
    change: Change, target: Target, name: Names = None, prefix: Prefix = None, why: Why = None
) -> None:
    """Fire it again, also one that had failed."""
    with target.operations(change.by) as found:
        plans = found.schedules
        _each(plans, name, prefix, lambda each: plans.resume(each, why=why), "resumed", target.json)


def _each(
    plans: Schedules, name: str | None, prefix: str | None, do: Callable[[str], object], what: str, json: bool
) -> None:
    if (name is None) == (prefix is None):
        raise UsageError("Give the name of one schedule, or --prefix.")
    if name is not None:
        do(name)
        done: Sequence[str] = [name]
    else:
        done = plans.many(prefix or "", do)
    if json:
        show.document({"what": what, "schedules": list(done)})
    elif name is not None:
        show.sentence(f"schedule {name}: {what}")
    else:
        show.sentence(f"{show.counted(len(done), 'schedule')} {what}")


@command(app)
def trigger(name: Name, change: Change, target: Target, why: Why = None) -> None:
    """Publish one more message now.

    It has an id of its own; the rule continues as before."""
    with target.operations(change.by) as found:
        id = found.schedules.trigger(name, why=why)
    if target.json:
        show.document({"name": name, "id": id})
    else:
        show.sentence(f"schedule {name}: published {id}")


@command(app)
def skip(name: Name, change: Change, target: Target, why: Why = None) -> None:
    """Leave the next occurrence out, with a note."""
    with target.operations(change.by) as found:
        key = found.schedules.skip(name, why=why)
    if target.json:
        show.document({"name": name, "skipped": key})
    else:
        show.sentence(f"schedule {name}: {key} is left out")


@command(app)
def backfill(
    name: Name,
    begin: Moment,
    end: Moment,
    change: Change,
    target: Target,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Only say what would be done.")] = False,
    why: Why = None,
) -> None:
    """Publish the past occurrences of a range.

    With the ids that they had or would have had."""
    with target.operations(change.by) as found:
        since, until = found.schedules.moment(begin), found.schedules.moment(end)
        done = found.schedules.backfill(name, since, until, rehearse=True)
        if not rehearse and done.count:
            show.confirm(f"Publish {show.counted(done.count, 'occurrence')} of {name}?", change.yes)
            done = found.schedules.backfill(name, since, until, why=why)
    if target.json:
        show.document(done)
    elif not done.count:
        show.sentence(f"schedule {name}: it has no occurrence in this range")
    elif done.is_rehearsal:
        show.sentence(f"schedule {name}: {done.count} would be published, from {done.first} to {done.last}")
    else:
        used = f", {done.in_use} left out because their ids are in use" if done.in_use else ""
        show.sentence(f"schedule {name}: published {done.published}, from {done.first} to {done.last}{used}")


@command(app)
def drop(name: Name, change: Change, target: Target, why: Why = None) -> None:
    """End a schedule for good. What it has published stays."""
    show.confirm(f"Drop schedule {name}? Set again, it starts as a new one.", change.yes)
    with target.operations(change.by) as found:
        found.schedules.drop(name, why=why)
    if target.json:
        show.document({"name": name, "what": "dropped"})
    else:
        show.sentence(f"schedule {name}: dropped")
