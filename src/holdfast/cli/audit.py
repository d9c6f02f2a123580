"""`holdfast audit`: what operators did."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from ..clock import wall_clock
from ..errors import UsageError
from . import show
from .show import Json, Limit, Queue
from .target import App, Target, Url, operations

AGE = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d)")
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def audit(
    target: Target = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what this one did.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="Only this: streams.halt, or all of streams.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="ID", help="Only about this message, stream or breaker."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only since then: 2h, 7d, or 2026-05-01T12:00:00+00:00.")
    ] = None,
    queue: Queue = None,
    limit: Limit = 50,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """What operators did: who, when, what, on what, before and after, and why. The newest first."""
    with operations(app, url, target) as found:
        actions = found.audit(who=by, action=action, queue=queue, target=on, since=moment(since), limit=limit)
    if json:
        show.document(actions)
        return
    show.table(
        ("at", "who", "action", "queue", "on", "count", "before", "after", "why"),
        (
            (
                e.at,
                e.who,
                e.action,
                e.queue,
                e.target or (None if e.filter is None else brief(e.filter) or "everything"),
                e.count,
                brief(changed(e.before, e.after)),
                brief(changed(e.after, e.before)),
                e.why,
            )
            for e in actions
        ),
        "Nothing is written down.",
    )


def changed(one: object, other: object) -> dict[str, object]:
    """What one side has and the other has not."""
    if not isinstance(one, dict):
        return {}
    there = other if isinstance(other, dict) else {}
    return {name: value for name, value in one.items() if there.get(name) != value or name not in there}


def brief(facts: object) -> str:
    told = facts.items() if isinstance(facts, dict) else ()
    return ", ".join(f"{name} {'none' if value is None else value}" for name, value in told)


def moment(text: str | None) -> datetime | None:
    """An instant, or how long ago."""
    if text is None:
        return None
    if ago := AGE.fullmatch(text.strip()):
        return wall_clock() - timedelta(seconds=float(ago[1]) * UNITS[ago[2]])
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since {text!r} is neither a length such as 2h nor an instant.") from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
