"""`holdfast audit`: what operators did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from ..errors import HoldfastError
from ..model.message import Reason
from . import show
from .filters import Limit, Queue, moment
from .target import NamedTarget

if TYPE_CHECKING:
    from ..operations import Operations


def audit(
    target: NamedTarget,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what this person did.")] = None,
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
) -> None:
    """Show what operators did, the newest first.

    Who, when, what, on what, before and after, and why."""
    when = moment(since, "--since")
    with target.operations() as found:
        about = None if on is None else whole(found, on)
        at = found.now()
        actions = found.audit(who=by, action=action, queue=queue, target=about, since=when, limit=limit)
    if target.json:
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
                as_id(e.target) or (None if e.filter is None else brief(e.filter) or "everything"),
                e.count,
                brief(changed(e.before, e.after)),
                brief(changed(e.after, e.before)),
                e.why,
            )
            for e in actions
        ),
        "The audit is empty.",
        at=at,
        spare=("count", "queue", "after", "before"),
    )


def whole(found: Operations, on: str) -> str:
    """The whole id for its last characters; else what was given: a stream, a breaker."""
    try:
        return str(found.messages.named(on))
    except HoldfastError:
        return on


def as_id(target: str | None) -> UUID | str | None:
    try:
        return None if target is None else UUID(target)
    except ValueError:
        return target


def changed(one: object, other: object) -> dict[str, object]:
    """What differs between before and after."""
    if not isinstance(one, dict):
        return {}
    there = other if isinstance(other, dict) else {}
    return {name: value for name, value in one.items() if there.get(name) != value or name not in there}


def brief(facts: object) -> str:
    pairs = facts.items() if isinstance(facts, dict) else ()
    return ", ".join(f"{name} {_value(name, value)}" for name, value in pairs)


def _value(name: str, value: object) -> str:
    """Reasons and flags by their names, as in other commands."""
    if value is None:
        return "none"
    if name in ("reason", "last_reason") and isinstance(value, int) and value in set(Reason):
        return show.reason_name(Reason(value))
    if name == "status" and isinstance(value, int):
        return "+".join(show.flags(value)) or "none"
    return str(value)
