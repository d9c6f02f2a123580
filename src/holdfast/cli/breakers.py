"""`holdfast breakers`: the circuit breakers that stop work which needs a broken dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .completing import breakers as complete_breakers
from .options import command
from .target import Change, Target

if TYPE_CHECKING:
    from ..operations import BreakerState

app = typer.Typer(
    help="Breakers: which are open, and why; open, close them.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(metavar="BREAKER", help="The breaker.", autocompletion=complete_breakers)
]
Why = Annotated[str | None, typer.Option("--why", help="Shown with each call that is refused.")]


@command(app, "list")
def list_(target: Target) -> None:
    """Every breaker that has been used, with its state."""
    with target.operations() as found:
        at, states = found.now(), found.breakers.list()
    if target.json:
        show.document(states)
        return
    show.table(
        ("breaker", "state", "forced", "failed", "of last", "trials left", "since", "next trial", "why"),
        (
            (
                e.name,
                e.state.value.replace("_", " "),
                e.forced,
                e.failures,
                e.calls,
                e.trials_left if e.state.value == "half_open" else None,
                e.changed_at,
                show.age(e.retry_in),
                e.why,
            )
            for e in states
        ),
        "No breaker has been used.",
        at=at,
        spare=("failed", "of last", "trials left", "forced"),
    )


@command(app, "open")
def open_(
    breaker: Name,
    change: Change,
    target: Target,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="Then trials begin; else until closed."),
    ] = None,
    why: Why = None,
) -> None:
    """Refuse every call from now on, and claim nothing that needs it."""
    with target.operations(change.by) as found:
        show_state(found.breakers.trip(breaker, why=why, seconds=seconds), target.json)


@command(app)
def close(breaker: Name, change: Change, target: Target, why: Why = None) -> None:
    """Let every call through, even if calls fail, until it is reset."""
    with target.operations(change.by) as found:
        show_state(found.breakers.force_closed(breaker, why=why), target.json)


@command(app)
def reset(breaker: Name, change: Change, target: Target, why: Why = None) -> None:
    """Close it, set its counters to 0, and let it decide by itself again."""
    with target.operations(change.by) as found:
        show_state(found.breakers.reset(breaker, why=why), target.json)


def show_state(state: BreakerState, json: bool) -> None:
    if json:
        show.document(state)
        return
    forced = ", forced" if state.forced else ""
    show.sentence(f"breaker {state.name}: {state.state.value.replace('_', ' ')}{forced}")
