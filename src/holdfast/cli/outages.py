"""`holdfast outages`: when no worker ran while something was due, or many messages were late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import show
from .filters import WHOLE_MAX, Limit
from .options import command
from .target import Target

if TYPE_CHECKING:
    from ..operations import Outage

app = typer.Typer(
    help="Outages: when no worker ran, and how late messages were.",
    no_args_is_help=True,
)

EXTRA = ("seconds", "catch_up_seconds", "per_second")


@command(app, "list")
def list_(target: Target, limit: Limit = 20) -> None:
    """Outages, the newest first. The numbers of an open one are as of now."""
    with target.operations() as found:
        at, outages = found.now(), found.outages.list(limit=limit)
    if target.json:
        show.document([show.fields(each, *EXTRA) for each in outages])
        return
    show.table(
        ("number", "cause", "began", "lasted", "handled", "dead", "mean late", "most late", "state"),
        (
            (
                e.number,
                e.cause,
                e.began_at,
                show.age(e.seconds),
                e.handled,
                e.died,
                show.age(e.late_mean),
                show.age(e.late_max),
                "over" if e.is_over else "goes on",
            )
            for e in outages
        ),
        "No outage is known.",
        at=at,
        spare=("dead", "mean late", "cause"),
    )


@command(app, "show")
def show_(
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", help="The number of the outage.", min=1, max=WHOLE_MAX)
    ],
    target: Target,
) -> None:
    """One outage: since when, how many were late.

    How late, and how fast they were handled."""
    with target.operations() as found:
        each = found.outages.show(number)
    if target.json:
        show.document(show.fields(each, *EXTRA))
        return
    show.pairs(rows_of(each))


def rows_of(each: Outage) -> list[tuple[str, object]]:
    """The summary of an outage, for people."""
    causes = {"absent": "no worker ran while something was due", "late": "many messages were late"}
    rate = f"{each.per_second:.2f} a second, in {show.age(each.catch_up_seconds)}"
    return [
        ("outage", each.number),
        ("cause", causes[each.cause]),
        ("no worker since", each.down_since),
        ("began", each.began_at),
        ("back", each.back_at),
        ("ended", each.ended_at or "it is not over"),
        ("lasted", show.age(each.seconds)),
        ("oldest due", each.oldest_at),
        ("handled late", each.handled),
        ("dead letters", each.died),
        ("mean lateness", show.age(each.late_mean)),
        ("most lateness", show.age(each.late_max)),
        ("handled", rate if each.handled else None),
    ]
