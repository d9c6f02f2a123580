"""`holdfast keys`: encryption of bodies at rest. A key is never an argument: other users could read it there."""

from __future__ import annotations

from typing import Annotated

import typer

from . import show
from .options import command
from .target import Change, Target

app = typer.Typer(help="Keys that bodies are encrypted with at rest.", no_args_is_help=True)


@app.command()
def new(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Its name, stored with each body; else today's date."),
    ] = None,
) -> None:
    """Make a key and print it, for HOLDFAST_KEYS or keys=. It is stored nowhere."""
    from ..bodies.keys import new_key
    from ..clock import wall_clock

    show.plain(new_key(name or f"{wall_clock():%Y-%m-%d}"))


@command(app, "list")
def list_(target: Target) -> None:
    """The keys of this process, and what each has sealed.

    Reads every stored body."""
    with target.operations() as found:
        names, counts = found.keys.names, found.keys.counts()
    kinds = ("pending", "dead", "edited", "events")
    by_key: dict[str | None, dict[str, int]] = {name: {} for name in names}
    for each in counts:
        by_key.setdefault(each.key, {})[each.kind] = each.count
    rows = [
        {
            "key": key,
            "seals": bool(names) and key == names[0],
            "is_here": key in names,
            **{kind: stored.get(kind, 0) for kind in kinds},
        }
        for key, stored in by_key.items()
    ]
    if target.json:
        show.document(rows)
        return
    show.table(
        ("key", "seals", "here", *kinds),
        (
            (row["key"] or "(not sealed)", row["seals"], row["is_here"], *(row[kind] for kind in kinds))
            for row in rows
        ),
        "There are no keys and no bodies.",
    )


@command(app)
def rotate(
    change: Change,
    target: Target,
    plain: Annotated[
        bool, typer.Option("--plain", help="Also seal bodies that are not encrypted yet.")
    ] = False,
) -> None:
    """Seal every stored body with the first key, in small batches. Exits with 3 if some could not be."""
    with target.operations(change.by) as found, show.counting("sealing", target.json) as progress:
        done = found.keys.rotate(plain=plain, progress=progress)
    if target.json:
        show.document(done)
    else:
        show.plain(f"{done.changed} sealed again, {done.unopened} could not be opened, {done.left} left")
    if done.unopened or done.left:
        raise typer.Exit(show.UNHEALTHY)
