"""`holdfast breakers`: the switches that stop what needs a broken dependency."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .show import Json
from .target import App, As, Url, application

if TYPE_CHECKING:
    from ..limits.breakers import Breakers, BreakerState

app = typer.Typer(
    help="Breakers: which dependencies are not called now, and why; open and close them by hand.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="BREAKER", help="The breaker.")]
Why = Annotated[str | None, typer.Option("--why", help="Shown to whoever is refused.")]


@app.command("list")
def list_(app: App = None, url: Url = None, json: Json = False) -> None:
    """Every breaker that has been used, with its state."""
    with breakers(app, url) as found:
        states = found.list()
    if json:
        show.document(states)
        return
    show.table(
        ("breaker", "state", "forced", "failed", "of last", "trials left", "since", "next trial", "why"),
        (
            (
                e.name,
                e.state.value,
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
    )


@app.command("open")
def open_(
    breaker: Name,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="Then trials as usual; else until closed."),
    ] = None,
    why: Why = None,
    by: As = None,
    app: App = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Refuse every call from now on, and claim nothing that needs it."""
    with breakers(app, url) as found:
        told(found.trip(breaker, why=why, seconds=seconds, by=by), json)


@app.command()
def close(
    breaker: Name, why: Why = None, by: As = None, app: App = None, url: Url = None, json: Json = False
) -> None:
    """Let every call through, whatever fails, until it is reset."""
    with breakers(app, url) as found:
        told(found.force_closed(breaker, why=why, by=by), json)


@app.command()
def reset(
    breaker: Name, why: Why = None, by: As = None, app: App = None, url: Url = None, json: Json = False
) -> None:
    """Close it with fresh counters and leave it to itself again."""
    with breakers(app, url) as found:
        told(found.reset(breaker, why=why, by=by), json)


@contextmanager
def breakers(app: str | None, url: str | None) -> Iterator[Breakers]:
    """The breakers of what is meant, closed afterwards."""
    from ..limits.breakers import Breakers

    found = application(app, url)
    try:
        yield Breakers(found.store)
    finally:
        found.close()


def told(state: BreakerState, json: bool) -> None:
    if json:
        show.document(state)
        return
    forced = ", forced" if state.forced else ""
    show.plain(f"breaker {show.clean(state.name)}: {state.state.value}{forced}")
